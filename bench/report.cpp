#include "bench/report.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

namespace hipnorm::bench {
namespace {

constexpr std::int64_t kSummaryElements = std::int64_t{1} << 20;

// A row of csv or json.
struct Record {
  std::string impl;
  std::string config;
  std::string source;
  std::optional<double> latency_us;
  std::optional<double> gbps;
  std::optional<double> copy_fraction;
  std::optional<double> speedup;
  std::optional<double> max_error;
  std::optional<double> graph_us;
};

// Six significant digits: beyond what any timer here can tell, and short to read.
double rounded(double value) {
  return std::isfinite(value) ? std::stod(fmt::format("{:.6g}", value)) : value;
}

std::vector<Record> records(const Result& result) {
  std::vector<Record> rows;
  const auto add = [&](std::string impl, const Selected& selected, double Latencies::* mine,
                       std::optional<double> error) {
    Record row{.impl = std::move(impl),
               .config = selected.config,
               .source = selected.source,
               .latency_us = {},
               .gbps = {},
               .copy_fraction = {},
               .speedup = {},
               .max_error = error,
               .graph_us = {}};
    if (result.latencies) {
      const double seconds = *result.latencies.*mine;
      row.latency_us = rounded(seconds * 1e6);
      row.gbps = rounded(result.floor_bytes() / seconds * 1e-9);
      row.copy_fraction = rounded(result.latencies->copy / seconds);
      row.speedup = rounded(result.latencies->aten / seconds);
    }
    if (error) row.max_error = rounded(*error);
    if (result.in_graph) row.graph_us = rounded(*result.in_graph.*mine * 1e6);
    rows.push_back(std::move(row));
  };
  add("hipnorm", result.selected, &Latencies::hipnorm, result.hipnorm_error);
  if (result.latencies) {
    add("aten", {}, &Latencies::aten, result.aten_error);
    add("copy", {}, &Latencies::copy, std::nullopt);
  }
  return rows;
}

std::string csv_text(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

std::string csv_number(std::optional<double> value) {
  return value ? fmt::format("{}", *value) : std::string();
}

nlohmann::ordered_json json_text(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
}

nlohmann::ordered_json json_number(std::optional<double> value) {
  return value && std::isfinite(*value) ? nlohmann::ordered_json(*value)
                                        : nlohmann::ordered_json(nullptr);
}

std::string cell(std::optional<double> value, int decimals) {
  return value ? fmt::format("{:.{}f}", *value, decimals) : std::string("-");
}

// Errors span ten orders of magnitude, aten's included.
std::string error_cell(std::optional<double> value) {
  if (!value) return "-";
  return *value < 1000 ? fmt::format("{:.3f}", *value) : fmt::format("{:.2e}", *value);
}

constexpr const char* kTableLine =
    "{:<13} {:<5} {:<9} {:>10} {:>10} {:>10} {:>6} {:>7} {:>8} {:>7} {:>10}  {}";

}  // namespace

double Result::floor_bytes() const {
  const double tensors = direction == Direction::forward ? 2 : 3;
  return tensors * static_cast<double>(shape.elements()) * size_of(dtype);
}

std::string table_header() {
  return fmt::format(kTableLine, "shape", "dtype", "direction", "us", "aten us", "copy us", "GB/s",
                     "of copy", "speed-up", "error", "aten error", "config  source");
}

std::string table_line(const Result& result) {
  const std::vector<Record> rows = records(result);
  const Record& ours = rows[0];
  std::optional<double> aten_us, copy_us;
  if (rows.size() == 3) {
    aten_us = rows[1].latency_us;
    copy_us = rows[2].latency_us;
  }
  std::string config = ours.config;
  if (!ours.source.empty()) config += "  " + ours.source;
  if (!result.latencies) config += result.hipnorm_error ? "  WRONG RESULT" : "  FAILED";
  std::string line = fmt::format(kTableLine, to_string(result.shape), to_string(result.dtype),
                                 to_string(result.direction), cell(ours.latency_us, 1),
                                 cell(aten_us, 1), cell(copy_us, 1), cell(ours.gbps, 1),
                                 cell(ours.copy_fraction, 2), cell(ours.speedup, 2),
                                 error_cell(ours.max_error), error_cell(result.aten_error), config);
  if (result.in_graph) {
    const auto [hipnorm, aten, copy] = *result.in_graph;
    line += '\n' + fmt::format(kTableLine, "", "", "in graph", cell(hipnorm * 1e6, 1),
                               cell(aten * 1e6, 1), cell(copy * 1e6, 1),
                               cell(result.floor_bytes() / hipnorm * 1e-9, 1),
                               cell(copy / hipnorm, 2), cell(aten / hipnorm, 2), "", "", "");
    line.resize(line.find_last_not_of(' ') + 1);
  }
  return line;
}

std::string csv_header() {
  return "device,arch,torch,dtype,direction,rows,cols,impl,config,source,latency_us,gbps,"
         "copy_fraction,speedup,max_error,graph_us\n";
}

std::string csv_lines(const Result& result, const Origin& origin) {
  std::string text;
  for (const Record& row : records(result)) {
    text +=
        fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", csv_text(origin.device),
                    csv_text(origin.arch), csv_text(origin.torch), to_string(result.dtype),
                    to_string(result.direction), result.shape.rows, result.shape.cols, row.impl,
                    csv_text(row.config), row.source, csv_number(row.latency_us),
                    csv_number(row.gbps), csv_number(row.copy_fraction), csv_number(row.speedup),
                    csv_number(row.max_error), csv_number(row.graph_us));
  }
  return text;
}

std::string json_lines(const Result& result, const Origin& origin) {
  std::string text;
  for (const Record& row : records(result)) {
    const nlohmann::ordered_json object = {
        {"device", origin.device},
        {"arch", origin.arch},
        {"torch", origin.torch},
        {"dtype", std::string(to_string(result.dtype))},
        {"direction", std::string(to_string(result.direction))},
        {"rows", result.shape.rows},
        {"cols", result.shape.cols},
        {"impl", row.impl},
        {"config", json_text(row.config)},
        {"source", json_text(row.source)},
        {"latency_us", json_number(row.latency_us)},
        {"gbps", json_number(row.gbps)},
        {"copy_fraction", json_number(row.copy_fraction)},
        {"speedup", json_number(row.speedup)},
        {"max_error", json_number(row.max_error)},
        {"graph_us", json_number(row.graph_us)},
    };
    text += object.dump() + '\n';
  }
  return text;
}

std::string summary(const std::vector<Result>& results) {
  struct Group {
    DType dtype;
    Direction direction;
    int shapes = 0;
    double log_speedup = 0;
    double log_fraction = 0;
  };
  std::vector<Group> groups;
  for (const Result& result : results) {
    if (!result.latencies || result.shape.elements() < kSummaryElements) continue;
    Group* group = nullptr;
    for (Group& known : groups) {
      if (known.dtype == result.dtype && known.direction == result.direction) group = &known;
    }
    if (group == nullptr) {
      group = &groups.emplace_back(Group{.dtype = result.dtype, .direction = result.direction});
    }
    ++group->shapes;
    group->log_speedup += std::log(result.latencies->aten / result.latencies->hipnorm);
    group->log_fraction += std::log(result.latencies->copy / result.latencies->hipnorm);
  }
  std::string text;
  if (!groups.empty()) text = "geometric means over the shapes of at least 2^20 elements:\n";
  for (const Group& group : groups) {
    text += fmt::format(
        "  {:<4} {:<8}  {:.2f} x aten, {:.2f} of the copy ({} shape{})\n", to_string(group.dtype),
        to_string(group.direction), std::exp(group.log_speedup / group.shapes),
        std::exp(group.log_fraction / group.shapes), group.shapes, group.shapes == 1 ? "" : "s");
  }
  return text;
}

}  // namespace hipnorm::bench
