// The offline sweep: tries configs of every cell in a worker process and journals what came of it.
#pragma once

#include <string>
#include <vector>

#include "csrc/dispatch/table.h"

namespace hipnorm::tune {

struct SweepOptions {
  std::string device = "cpu";  // "cpu", "gpu", "gpu:1"
  std::vector<TableKey> cells;
  double budget = 0;  // seconds; 0: until every config of every cell was tried
  std::string journal;
  bool resume = false;
  int most = 200;                   // configs a cell
  std::vector<std::string> first;   // configs tried before all others, where they are valid
  std::vector<std::string> worker;  // the worker's command
  // Seconds: a worker may take until it greets; a config, at least, until it counts as hanging.
  double hello_limit = 120, least_limit = 20;
};

// Exit code: 0 done (or the budget is used up), 1 the default itself fails or the machine cannot be
// used, 130 interrupted. Progress on standard error, the summary on standard output. Throws
// std::invalid_argument on bad input, before anything runs.
int sweep(const SweepOptions& options);

}  // namespace hipnorm::tune
