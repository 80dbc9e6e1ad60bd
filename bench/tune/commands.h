// hipnorm-tune's commands besides the sweep. Each returns the program's exit code and throws
// std::invalid_argument on bad input, before anything is written.
#pragma once

#include <string>
#include <vector>

#include "bench/shapes.h"
#include "csrc/dispatch/table.h"

namespace hipnorm::tune {

// Writes the results of one session of the journals into a table, replacing its rows of the same
// cells; the others stay. Refuses results of a dirty tree (unless `allow_dirty`) and of more than
// one session of the architecture (unless `session` names one), and a table of another method or
// architecture. The file is replaced at once or not at all.
struct PromoteOptions {
  std::vector<std::string> journals;
  std::string output;   // empty: configs/<arch>.csv of the source folder
  std::string session;  // empty: the only one
  bool allow_dirty = false;
};
int promote(const PromoteOptions& options);

// Measures the rows of the device's tables against the default again, in a fresh process. 1 when a
// row is wrong, or slower than the default beyond the noise.
struct VerifyOptions {
  std::string device = "cpu";
  std::string table;  // a file; empty: the tables in use
  double budget = 0;  // seconds; 0: all rows
  std::vector<std::string> worker;
};
int verify(const VerifyOptions& options);

// Lists the tables in use: rows, where the default won, and rows whose kernels have changed since
// they were measured. 1 when there are such rows or unreadable ones.
int status(const std::string& table);

// What would run for the shapes, and why not something else.
struct ExplainOptions {
  std::string device = "cpu";  // "cpu", "gpu", or a known device: "gfx942", "MI350X"
  std::vector<TableKey> cells;
};
int explain(const ExplainOptions& options);

}  // namespace hipnorm::tune
