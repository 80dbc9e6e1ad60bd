// hipnorm-tune's commands besides the sweep. Each returns the program's exit code and throws
// std::invalid_argument on bad input, before anything is written.
#pragma once

#include <string>
#include <vector>

#include "bench/shapes.h"
#include "csrc/dispatch/table.h"

namespace hipnorm::tune {

// Writes the results of one session of the journals into a table, replacing its rows of the same
// cells; the others stay. Refuses results of a dirty tree or of an unknown commit (unless
// `allow_dirty`), of another build or method than this program's and of more than one session
// (unless `session` names one), and a table of another method or architecture. The file is replaced
// at once or not at all.
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
  std::string table;           // a file; empty: the tables in use
  double budget = 0;           // seconds; 0: all rows
  bool accuracy_only = false;  // every row runs and is judged; no verdict on times
  std::vector<std::string> worker;
};
int verify(const VerifyOptions& options);

// Lists the tables in use: rows, where the default won, and rows whose kernels have changed since
// they were measured. 1 when there are such rows or unreadable ones.
int status(const std::string& table);

// How much slower than the best of each cell what this build's default would be: its choices,
// looked up in the last session of a journal. Geometric mean, worst, and the cells where the sweep
// did not try today's default. 1 where none could be looked up, or the journal says that one fails.
struct RegretOptions {
  std::string journal;
  std::string device;  // as ExplainOptions::device; empty: the one that was measured
};
int regret(const RegretOptions& options);

// What would run for the shapes, and why not something else.
struct ExplainOptions {
  std::string device = "cpu";  // "cpu", "gpu", or a known device: "gfx942", "MI350X"
  std::vector<TableKey> cells;
};
int explain(const ExplainOptions& options);

// "H200", "gfx942", "cpu", "gpu": a known device, by its data sheet, or one of this machine's.
// Throws std::invalid_argument where there is none.
const Device& device_of(const std::string& name);

}  // namespace hipnorm::tune
