#include "bench/tune/inputs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <thread>

#include "bench/tune/cell.h"
#include "tests/reference/number_format.h"
#include "tests/reference/rows.h"

namespace hipnorm::tune {
namespace {

template <typename Work>
void share(std::int64_t count, int threads, const Work& work) {
  const auto n = std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(1, count));
  std::vector<std::thread> others;
  for (std::int64_t t = 1; t < n; ++t) {
    others.emplace_back(work, count * t / n, count * (t + 1) / n);
  }
  work(0, count / n);
  for (std::thread& other : others) other.join();
}

// Two normal numbers for each index (Box and Muller), from a counter: any thread can make any part.
struct Normal {
  std::uint64_t seed;
  static std::uint64_t mix(std::uint64_t z) {  // splitmix64
    z += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  void operator()(std::int64_t i, float& a, float& b) const {
    const std::uint64_t bits = mix(seed ^ mix(static_cast<std::uint64_t>(i)));
    const float u = (static_cast<float>(bits >> 40) + 0.5f) * 0x1p-24f;
    const float angle =
        static_cast<float>(bits & 0xffffff) * (2 * std::numbers::pi_v<float>)*0x1p-24f;
    const float radius = std::sqrt(-2 * std::log(u));
    a = radius * std::cos(angle);
    b = radius * std::sin(angle);
  }
};

// offset + scale·randn in dtype `type`.
std::vector<char> random_numbers(DType type, std::int64_t count, double offset, double scale,
                                 std::uint64_t seed, int threads) {
  std::vector<char> bytes(static_cast<std::size_t>(count * size_of(type)));
  const Normal normal{Normal::mix(seed)};
  share((count + 1) / 2, threads, [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t pair = first; pair < end; ++pair) {
      float values[2];
      normal(pair, values[0], values[1]);
      for (std::int64_t k = 0; k < 2 && 2 * pair + k < count; ++k) {
        reference::store(type, bytes.data(), 2 * pair + k, offset + scale * double(values[k]));
      }
    }
  });
  return bytes;
}

}  // namespace

Inputs::Inputs(const TableKey& cell, int threads) : problem(problem_of(cell)) {
  const Problem& p = problem;
  const std::int64_t elements = p.rows * p.cols;
  x = random_numbers(p.x, elements, -2.3, 0.5, 1, threads);
  const auto set_row = [&](std::int64_t r, auto value) {
    for (std::int64_t c = 0; c < p.cols && r < p.rows; ++c) {
      const std::int64_t i = r * p.cols + c;
      reference::store(p.x, x.data(), i, value(reference::load(p.x, x.data(), i)));
    }
  };
  set_row(1, [](double old) { return old + 1000; });
  set_row(2, [](double) { return 3.25; });
  const auto spoil_rows_of = [&](std::vector<char>& tensor) {
    const auto row_bytes = static_cast<std::ptrdiff_t>(p.cols * size_of(p.x));
    const std::int64_t first = std::min(kFirstBadRow, p.rows);
    const std::int64_t end = std::min(kFirstBadRow + kBadRows, p.rows);
    ordinary_rows.assign(tensor.begin() + first * row_bytes, tensor.begin() + end * row_bytes);
    const auto set = [&](std::int64_t r, std::int64_t c, double value) {
      if (r < p.rows) reference::store(p.x, tensor.data(), r * p.cols + c, value);
    };
    set(kFirstBadRow, p.cols / 2, std::numeric_limits<double>::quiet_NaN());
    set(kFirstBadRow + 1, p.cols - 1, std::numeric_limits<double>::infinity());
  };
  if (p.has_weight) weight = random_numbers(p.weight, p.cols, 0, 1, 2, threads);
  if (p.has_bias) bias = random_numbers(p.weight, p.cols, 0, 1, 3, threads);
  if (!p.is_backward()) {
    spoil_rows_of(x);
    return;
  }
  dy = random_numbers(p.x, elements, 0, 1, 4, threads);
  if (p.cols >= kLeastColsOfBadGradients) spoil_rows_of(dy);
  const DType accumulate = accumulate_type(p.x);
  mean.resize(static_cast<std::size_t>(p.rows * size_of(accumulate)));
  rstd.resize(mean.size());
  share(p.rows, threads, [&](std::int64_t first, std::int64_t end) {
    std::vector<double> row(static_cast<std::size_t>(p.cols));
    for (std::int64_t r = first; r < end; ++r) {
      reference::load_row(p.x, x.data(), r * p.cols, p.cols, row.data());
      const auto s = reference::statistics<double>(row.data(), p.cols, eps, accumulate);
      reference::store(accumulate, mean.data(), r, s.mean());
      reference::store(accumulate, rstd.data(), r, s.rstd);
    }
  });
}

reference::ForwardInputs Inputs::forward() const {
  const Problem& p = problem;
  return {.rows = p.rows,
          .cols = p.cols,
          .x = {p.x, x.data(), p.cols},
          .weight = {p.weight, p.has_weight ? weight.data() : nullptr},
          .bias = {p.weight, p.has_bias ? bias.data() : nullptr},
          .eps = eps};
}

reference::BackwardInputs Inputs::backward() const {
  const Problem& p = problem;
  const DType accumulate = accumulate_type(p.x);
  return {.rows = p.rows,
          .cols = p.cols,
          .dy = {p.x, dy.data(), p.cols},
          .x = {p.x, x.data(), p.cols},
          .weight = {p.weight, p.has_weight ? weight.data() : nullptr},
          .mean = {accumulate, mean.data()},
          .rstd = {accumulate, rstd.data()},
          .eps = eps};
}

}  // namespace hipnorm::tune
