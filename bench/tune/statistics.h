// What samples of times say.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace hipnorm::tune {

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

// Default and candidate timed side by side, the default twice: the gap between the twins is what
// this machine cannot tell apart.
struct Duel {
  double first_default = 0;
  double candidate = 0;
  double second_default = 0;

  double gap() const { return std::abs(first_default - second_default); }
  double best_default() const { return std::min(first_default, second_default); }
  double mean_default() const { return (first_default + second_default) / 2; }
  double ratio() const { return candidate / best_default(); }
  // Beyond the noise.
  bool faster() const { return best_default() - candidate > gap(); }
  bool slower() const { return candidate - std::max(first_default, second_default) > gap(); }
};

inline double geometric_mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::log(value);
  return values.empty() ? 1 : std::exp(sum / static_cast<double>(values.size()));
}

}  // namespace hipnorm::tune
