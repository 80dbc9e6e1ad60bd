#include "csrc/dispatch/table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include "csrc/dispatch/embedded_configs.h"
#include "csrc/dispatch/text.h"
#include "csrc/dispatch/validate.h"

namespace hipnorm {
namespace {

constexpr std::string_view kFormat = "# hipnorm configs 1 arch=";

// A near row is one within these factors of the shape asked for, as powers of two: up to twice or
// half the columns, since a config's threads and split fit a width; four times the rows, whose
// number changes less.
constexpr double kColsBound = 1;
constexpr double kRowsBound = 2;

// Lines of `text` without their ends, "\n" or "\r\n".
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}
  bool next(std::string_view& line) {
    if (rest_.empty()) return false;
    const std::size_t end = rest_.find('\n');
    complete_ = end != std::string_view::npos;
    line = rest_.substr(0, end);
    rest_ = complete_ ? rest_.substr(end + 1) : std::string_view();
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    ++number_;
    return true;
  }
  int number() const { return number_; }
  bool complete() const { return complete_; }  // the line had its end

 private:
  std::string_view rest_;
  int number_ = 0;
  bool complete_ = true;
};

// Fields of a CSV line; one in double quotes may hold commas (RFC 4180 without doubled quotes,
// which no field needs).
std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> fields;
  for (;;) {
    if (!line.empty() && line.front() == '"') {
      const std::size_t end = line.find('"', 1);
      if (end == std::string_view::npos) throw std::invalid_argument("a quote is not closed");
      fields.push_back(line.substr(1, end - 1));
      line.remove_prefix(end + 1);
      if (line.empty()) return fields;
      if (line.front() != ',') throw std::invalid_argument("expected a comma after a quote");
      line.remove_prefix(1);
    } else {
      const std::size_t comma = line.find(',');
      fields.push_back(line.substr(0, comma));
      if (comma == std::string_view::npos) return fields;
      line.remove_prefix(comma + 1);
    }
  }
}

template <typename T>
T number(std::string_view name, std::string_view text, T low, T high) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= low) ||
      !(value <= high)) {
    throw std::invalid_argument(
        concat(name, " must be a number from ", low, " to ", high, ", but is '", text, "'"));
  }
  return value;
}

template <typename T>
T named(std::string_view name, std::string_view text, const std::optional<T>& value) {
  if (!value) throw std::invalid_argument(concat("unknown ", name, " '", text, "'"));
  return *value;
}

Config complete_config(std::string_view text, Op op) {
  PartialConfig partial;
  std::string error;
  if (!parse_config(text, partial, error)) throw std::invalid_argument(error);
  const VariantInfo& variant = info(partial.config.variant);
  if (!serves(variant, op)) {
    throw std::invalid_argument(concat(variant.name, " is no ", to_string(op), " variant"));
  }
  for (std::size_t i = 0; i < std::size(kConfigFields); ++i) {
    if ((variant.*kConfigFields[i].limits).high > 0 && !partial.given[i]) {
      throw std::invalid_argument(concat("config lacks ", kConfigFields[i].name));
    }
  }
  return partial.config;
}

TableRow parse_row(std::string_view line, int line_number) {
  const std::vector<std::string_view> f = split(line);
  if (f.size() != 11) {
    throw std::invalid_argument(
        concat("expected the 11 fields ", kTableColumns, ", but got ", f.size()));
  }
  constexpr std::int64_t kMost = std::int64_t{1} << 59;
  constexpr double kYear = 3.2e13;  // µs
  TableRow row;
  row.line = line_number;
  row.key.op = named("op", f[0], parse_op(f[0]));
  row.key.x = named("dtype", f[1], parse_dtype(f[1]));
  row.key.weight = named("dtype", f[2], parse_dtype(f[2]));
  row.key.bias = number("bias", f[3], 0, 1) != 0;
  row.key.cols = number<std::int64_t>("cols", f[4], 1, kMost);
  row.key.rows = number<std::int64_t>("rows", f[5], 1, kMost);
  row.config = complete_config(f[6], row.key.op);
  row.time_us = number("time_us", f[7], 0.0, kYear);
  row.default_us = number("default_us", f[8], 0.0, kYear);
  row.compute_units = number("compute_units", f[9], 1, std::numeric_limits<int>::max());
  row.sources = f[10];
  return row;
}

// Base-2 logarithm of a ratio, its sign dropped.
double log_ratio(std::int64_t a, std::int64_t b) {
  return std::abs(std::log2(static_cast<double>(a) / static_cast<double>(b)));
}

struct Near {
  double distance;
  const TableRow* row;
};

}  // namespace

TableKey key_of(const Problem& problem) {
  return {.op = problem.op,
          .x = problem.x,
          .weight = problem.has_weight ? problem.weight : DType::none,
          .bias = problem.has_bias,
          .cols = problem.cols,
          .rows = problem.rows};
}

Table::Table(std::string_view text, std::string file) : file_(std::move(file)) {
  Lines lines(text);
  std::string_view line;
  if (!lines.next(line) || !line.starts_with(kFormat) || line.size() == kFormat.size()) {
    throw std::invalid_argument(concat(file_, " is no hipnorm table: expected '", kFormat,
                                       "…' in line 1, but got '", line.substr(0, 80), "'"));
  }
  arch_ = line.substr(kFormat.size());
  bool found_columns = false;
  while (!found_columns && lines.next(line)) {
    if (line.starts_with("# ")) {
      provenance_.emplace_back(line.substr(2));
    } else if (line == kTableColumns) {
      found_columns = true;
    } else if (!line.empty() && line != "#") {
      break;
    }
  }
  if (!found_columns) {
    throw std::invalid_argument(concat(file_, ":", lines.number(), ": expected the columns '",
                                       kTableColumns, "', but got '", line.substr(0, 80), "'"));
  }
  while (lines.next(line)) {
    if (line.empty() || line.front() == '#') continue;
    try {
      if (!lines.complete()) throw std::invalid_argument("the last line has no end: cut off?");
      rows_.push_back(parse_row(line, lines.number()));
    } catch (const std::invalid_argument& reason) {
      complaints_.push_back(concat(file_, ":", lines.number(), ": ", reason.what()));
    }
  }
  // Stable: of two rows with the same key the first stays.
  std::stable_sort(rows_.begin(), rows_.end(),
                   [](const TableRow& a, const TableRow& b) { return a.key < b.key; });
  const auto repeated = [&](const TableRow& first, const TableRow& again) {
    if (first.key != again.key) return false;
    complaints_.push_back(concat(file_, ":", again.line, ": the shape of line ", first.line,
                                 " again; this row is not used"));
    return true;
  };
  rows_.erase(std::unique(rows_.begin(), rows_.end(), repeated), rows_.end());
}

namespace {

// The first row that does not come before `key`.
auto at_least(const std::vector<TableRow>& rows, const TableKey& key) {
  return std::lower_bound(
      rows.begin(), rows.end(), key,
      [](const TableRow& row, const TableKey& wanted) { return row.key < wanted; });
}

bool fits(const TableRow& row, const Problem& problem, const Device& device) {
  return !validate(row.config, problem, device).has_value();
}

}  // namespace

const TableRow* Table::exact(const Problem& problem, const Device& device) const {
  const TableKey key = key_of(problem);
  const auto row = at_least(rows_, key);
  if (row == rows_.end() || row->key != key) return nullptr;
  return fits(*row, problem, device) ? &*row : nullptr;
}

const TableRow* Table::near(const Problem& problem, const Device& device) const {
  const TableKey key = key_of(problem);
  if (key.cols < 1 || key.rows < 1) return nullptr;
  // Rows of the same kind are sorted by cols, then rows.
  TableKey low = key, high = key;
  low.cols = (key.cols + 1) / 2;
  low.rows = 0;
  high.cols = key.cols * 2;
  high.rows = std::numeric_limits<std::int64_t>::max();
  const auto begin = at_least(rows_, low), end = at_least(rows_, high);
  std::vector<Near> near;
  for (auto width = begin; width != end;) {
    TableKey last = width->key;
    last.rows = std::numeric_limits<std::int64_t>::max();
    const auto next = at_least(rows_, last);
    // More rows than any that was measured are like the most that were.
    const std::int64_t rows = std::min(key.rows, std::prev(next)->key.rows);
    const double cols_distance = log_ratio(key.cols, width->key.cols) / kColsBound;
    for (auto row = width; row != next; ++row) {
      const double rows_distance = log_ratio(rows, row->key.rows) / kRowsBound;
      if (rows_distance <= 1 && row->key != key)
        near.push_back({cols_distance + rows_distance, &*row});
    }
    width = next;
  }
  std::stable_sort(near.begin(), near.end(),
                   [](const Near& a, const Near& b) { return a.distance < b.distance; });
  for (const Near& n : near) {
    if (fits(*n.row, problem, device)) return n.row;
  }
  return nullptr;
}

std::string table_header(std::string_view arch) { return concat(kFormat, arch, '\n'); }

std::string to_string(const TableRow& row) {
  return concat(to_string(row.key.op), ',', to_string(row.key.x), ',', to_string(row.key.weight),
                ',', row.key.bias ? 1 : 0, ',', row.key.cols, ',', row.key.rows, ",\"",
                to_string(row.config), "\",", row.time_us, ',', row.default_us, ',',
                row.compute_units, ',', row.sources);
}

namespace {

struct Tables {
  std::deque<Table> all;  // a deque does not move what `order` points to
  std::vector<const Table*> order;
  std::string error;  // why the user's file cannot be used

  Tables() {
    const char* path = std::getenv("HIPNORM_CONFIG_FILE");
    if (path != nullptr && *path != '\0') read(path);
    for (const EmbeddedFile& file : embedded_configs()) {
      add(file.text, std::string(file.name));
    }
    for (const Table& table : all) order.push_back(&table);
  }

 private:
  void read(const char* path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream text;
    std::error_code ignored;  // a folder opens, but cannot be read
    if (!in || std::filesystem::is_directory(path, ignored)) {
      error = concat("hipnorm: HIPNORM_CONFIG_FILE=", path, " cannot be read");
      return;
    }
    text << in.rdbuf();
    add(text.str(), path);
    if (!error.empty()) error = concat("hipnorm: HIPNORM_CONFIG_FILE: ", error);
  }
  void add(std::string_view text, std::string name) {
    try {
      all.emplace_back(text, std::move(name));
    } catch (const std::invalid_argument& reason) {
      error = reason.what();
    }
  }
};

const Tables& loaded() {
  static const Tables tables;
  if (!tables.error.empty()) throw std::invalid_argument(tables.error);
  return tables;
}

}  // namespace

std::span<const Table* const> tables() { return loaded().order; }

}  // namespace hipnorm
