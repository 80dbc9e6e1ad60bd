// What samples of times say.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace hipnorm::tune {

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

// Interquartile range ÷ √n: of normal samples 1.08 standard errors of their median, and blind to
// the quarter that something else on the machine has disturbed.
inline double spread(std::vector<double> values) {
  if (values.size() < 2) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return (values[n - 1 - n / 4] - values[n / 4]) / std::sqrt(static_cast<double>(n));
}

// What a GPU's event timer resolves: every time read on an H200 is a multiple of 32 ns. A
// processor's clock is finer, and no call on one is so short that this would matter.
inline constexpr double kTick = 32e-9;
// Times that are one tick apart may be equal; two ticks are more than that.
inline constexpr double kLeastGap = 1.5 * kTick;
// Of two medians the difference is beyond twice its standard error when it exceeds this many
// spreads: 2 · √2 / 1.08.
inline constexpr double kSpreads = 2.6;

// Default and candidate timed side by side, the default twice: the gap between the twins is what
// this machine cannot tell apart. The twins may agree by chance, most of all where times come in
// ticks, so the gap is never less than kLeastGap and what the samples' own spread leaves open.
struct Duel {
  double first_default = 0;
  double candidate = 0;
  double second_default = 0;
  double widest_spread = 0;  // of the three

  double gap() const {
    return std::max(
        {std::abs(first_default - second_default), kLeastGap, kSpreads * widest_spread});
  }
  double best_default() const { return std::min(first_default, second_default); }
  double mean_default() const { return (first_default + second_default) / 2; }
  double ratio() const { return candidate / best_default(); }
  // Beyond the noise.
  bool faster() const { return best_default() - candidate > gap(); }
  bool slower() const { return candidate - std::max(first_default, second_default) > gap(); }
};

inline Duel duel(const std::vector<double>& first_default, const std::vector<double>& candidate,
                 const std::vector<double>& second_default) {
  return {median(first_default), median(candidate), median(second_default),
          std::max({spread(first_default), spread(candidate), spread(second_default)})};
}

inline double geometric_mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::log(value);
  return values.empty() ? 1 : std::exp(sum / static_cast<double>(values.size()));
}

}  // namespace hipnorm::tune
