#include "bench/tune/display.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "bench/tune/cell.h"
#include "bench/tune/statistics.h"

namespace hipnorm::tune {

Display::Display() : terminal_(isatty(STDERR_FILENO) == 1) {}

void Display::begin_cell(std::string prefix, double left) {
  prefix_ = std::move(prefix);
  left_ = left;
}

void Display::clear_line() const {
  if (terminal_) fmt::print(stderr, "\r\033[K");
}

void Display::note(const std::string& text) const {
  clear_line();
  fmt::print(stderr, "{}\n", text);
}

void Display::progress(std::size_t tried, std::size_t all, double best, double used,
                       double share) const {
  if (!terminal_) return;
  const double whole = used * static_cast<double>(all) / static_cast<double>(tried);
  const double left = share > 0 ? std::min(whole, share) - used : whole - used;
  clear_line();
  fmt::print(stderr, "{}: {}/{} configs, best {:.3f} x, {:.0f} s left{}", prefix_, tried, all,
             1 / best, std::max(0.0, left),
             left_ > 0 ? fmt::format(" of the cell, {:.0f} s of all", left_ - used) : "");
}

void print_summary(const std::vector<TableKey>& cells,
                   const std::map<std::string, nlohmann::json>& results,
                   const std::map<std::string, int>& failures) {
  std::vector<double> gains;
  std::size_t none = 0;
  double best = 1;
  for (const TableKey& key : cells) {
    const auto found = results.find(to_string(key));
    if (found == results.end()) continue;
    const nlohmann::json& line = found->second;
    const double gain = line.at("default_us").get<double>() / line.at("time_us").get<double>();
    gains.push_back(gain);
    best = std::max(best, gain);
    none += line.at("config") == line.at("default");
  }
  fmt::print(
      "{} of {} cells measured. Over the default: {:.3f} x (geometric mean), {:.3f} x at best, "
      "none "
      "in {} cells.\n",
      gains.size(), cells.size(), geometric_mean(gains), best, none);
  std::string text;
  for (const auto& [outcome, count] : failures) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, outcome);
  }
  fmt::print("Configs that failed: {}.\n", text.empty() ? "none" : text);
}

}  // namespace hipnorm::tune
