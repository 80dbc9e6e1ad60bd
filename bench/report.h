// Results, and how they are written: table, csv, json.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/operators.h"
#include "bench/options.h"

namespace hipnorm::bench {

// Where the numbers come from; the same for every case of a run.
struct Origin {
  std::string device;  // "AMD EPYC, 2 threads"
  std::string arch;    // names the table of configs: "cpu-avx2"
  std::string torch;   // "2.13.0"
};

struct Latencies {  // seconds per call
  double hipnorm = 0;
  double aten = 0;
  double copy = 0;
};

struct Result {
  Shape shape;
  DType dtype = DType::f32;
  Direction direction = Direction::forward;
  Selected selected;
  std::optional<Latencies> latencies;   // none: hipnorm is wrong
  std::optional<Latencies> in_graph;    // of a short call on a GPU: of many calls in a graph
  std::optional<double> hipnorm_error;  // none: the call failed
  std::optional<double> aten_error;

  double floor_bytes() const;  // what has to move: 2MNe forward, 3MNe backward
};

// A line of the table without its end: a case (two lines where it has times in a graph), or the
// headings.
std::string table_header();
std::string table_line(const Result& result);

// The lines of a case: hipnorm, aten, copy; only hipnorm where there are no latencies. Each ends in
// a newline. A number that is missing or not finite is null in JSON; in CSV it is empty, or inf,
// nan.
std::string csv_header();
std::string csv_lines(const Result& result, const Origin& origin);
std::string json_lines(const Result& result, const Origin& origin);

// Geometric means of the speed-up and the fraction of the copy, one line for each dtype and
// direction, over the shapes of at least 2^20 elements (below, call overhead is what is measured).
std::string summary(const std::vector<Result>& results);

// A new file's content in full, or no file: written to "<path>.partial", which commit() renames to
// `path`. A path that is no regular file (a pipe, /dev/stdout) is written directly.
class OutputFile {
 public:
  // Opens it, so that a path that cannot be written is known before anything is measured. Throws
  // UsageError that names the path and the reason.
  explicit OutputFile(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Both throw std::runtime_error that names the file and the reason.
  void write(const std::string& text);  // reaches the file before it returns
  void commit();

 private:
  std::string path_;       // final, symbolic links resolved
  std::string temporary_;  // empty: written directly
  int file_ = -1;
};

}  // namespace hipnorm::bench
