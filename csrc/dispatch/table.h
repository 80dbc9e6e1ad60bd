// Tables of measured configs: configs/<arch>.csv, embedded at build, and one file of the user's.
// The file format and the look-up rule, on one page: configs/README.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/dispatch/config.h"
#include "csrc/dispatch/device.h"
#include "csrc/dispatch/problem.h"

namespace hipnorm {

// What distinguishes two rows of a table. `weight` is none where there is no weight.
struct TableKey {
  Op op = Op::forward;
  DType x = DType::f32;
  DType weight = DType::none;
  bool bias = false;
  std::int64_t cols = 0;
  std::int64_t rows = 0;
  friend auto operator<=>(const TableKey&, const TableKey&) = default;
};
TableKey key_of(const Problem& problem);

struct TableRow {
  TableKey key;
  Config config;
  double time_us = 0;     // of `config`, median
  double default_us = 0;  // of the default, measured beside it
  int compute_units = 0;  // of the device that was measured
  std::string sources;    // hash of the variant's sources when it was measured
  int line = 0;           // in the file, from 1
};

class Table {
 public:
  // Reads the text of a table. Throws std::invalid_argument, naming `file`, when its first lines
  // are not the header; a row that cannot be read is left out and gets a line in complaints():
  // "file:line: reason".
  Table(std::string_view text, std::string file);

  // The row of this very shape, if validate() takes its config for `problem`; else null.
  const TableRow* exact(const Problem& problem, const Device& device) const;
  // The nearest row of another shape within factor 2 in cols and 4 in rows, skipping those whose
  // config validate() refuses for `problem`; else null. Microseconds.
  const TableRow* near(const Problem& problem, const Device& device) const;

  const std::string& arch() const { return arch_; }
  const std::string& file() const { return file_; }
  std::span<const TableRow> rows() const { return rows_; }  // sorted by key
  std::span<const std::string> complaints() const { return complaints_; }
  // The lines before the rows that start with "# ", the first (format and arch) excepted.
  std::span<const std::string> provenance() const { return provenance_; }

 private:
  std::string file_;
  std::string arch_;
  std::vector<TableRow> rows_;
  std::vector<std::string> complaints_;
  std::vector<std::string> provenance_;
};

// The two lines that every table begins with, and one row as the file has it.
std::string table_header(std::string_view arch);
inline constexpr std::string_view kTableColumns =
    "op,x,weight,bias,cols,rows,config,time_us,default_us,compute_units,sources";
std::string to_string(const TableRow& row);

// All tables in use: that of HIPNORM_CONFIG_FILE, if it is set, then the embedded ones. The
// variable and the file are read once. Throws std::invalid_argument, at every call, where that file
// cannot be used: it is never ignored.
std::span<const Table* const> tables();

}  // namespace hipnorm
