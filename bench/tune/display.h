// What a sweep tells its user: lines on standard error, on a terminal also one of progress that is
// written over, and a summary on standard output.
#pragma once

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "csrc/dispatch/table.h"

namespace hipnorm::tune {

class Display {
 public:
  Display();

  // What the progress of a cell begins with; `left`: seconds of the whole budget, 0: there is none.
  void begin_cell(std::string prefix, double left);
  const std::string& prefix() const { return prefix_; }

  void note(const std::string& text) const;
  // Progress in the cell: `tried` of `all` configs in `used` seconds, the best in `best` × the
  // default's time; `share`: seconds that the cell may use, 0: any.
  void progress(std::size_t tried, std::size_t all, double best, double used, double share) const;

 private:
  void clear_line() const;

  bool terminal_;
  std::string prefix_;
  double left_ = 0;
};

// Gains over the default in those of `cells` that have a result, and how often configs failed.
void print_summary(const std::vector<TableKey>& cells,
                   const std::map<std::string, nlohmann::json>& results,
                   const std::map<std::string, int>& failures);

}  // namespace hipnorm::tune
