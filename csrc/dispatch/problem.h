// What one LayerNorm call asks for: the only thing about the tensors that dispatch looks at.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hipnorm {

// The four ops that dispatch distinguishes. `backward` may run any backward variant; the other two
// fix the algorithm.
enum class Op : std::uint8_t { forward, backward, backward_fused, backward_two_kernel };
inline constexpr std::array kOps = {Op::forward, Op::backward, Op::backward_fused,
                                    Op::backward_two_kernel};

// `none` stands for "no weight and no bias".
enum class DType : std::uint8_t { none, f32, f16, bf16, f64 };

constexpr int size_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return 8;
    case DType::f32: return 4;
    case DType::f16:
    case DType::bf16: return 2;
    case DType::none: return 0;
  }
  return 0;
}

// Arithmetic, mean, rstd and partial sums are f32, or f64 for f64 input.
constexpr DType accumulate_type(DType x) { return x == DType::f64 ? DType::f64 : DType::f32; }

// Which gradients a backward has to write.
struct GradMask {
  bool dx = false;
  bool dweight = false;
  bool dbias = false;
  bool columns() const { return dweight || dbias; }  // any sum over rows
  friend bool operator==(const GradMask&, const GradMask&) = default;
};

struct Problem {
  Op op = Op::forward;
  DType x = DType::f32;        // input, output and their gradients
  DType weight = DType::none;  // weight, bias and their gradients
  std::int64_t rows = 0;       // M: product of the leading dimensions
  std::int64_t cols = 0;       // N: product of normalized_shape
  // Bytes, a power of two ≤ 64 that divides the address of every row, weight and bias touched.
  int alignment = 64;
  bool has_weight = false;
  bool has_bias = false;
  GradMask grads;  // backward only

  bool is_backward() const { return op != Op::forward; }
  // Bytes of one [M, N] tensor of the input's dtype.
  std::int64_t tensor_bytes() const { return rows * cols * size_of(x); }
  friend bool operator==(const Problem&, const Problem&) = default;
};

// Whether anything has to be written.
inline bool has_work(const Problem& problem) {
  return problem.rows > 0 && problem.cols > 0 &&
         (!problem.is_backward() || problem.grads.dx || problem.grads.columns());
}

std::string_view to_string(Op op);
std::string_view to_string(DType dtype);
std::optional<Op> parse_op(std::string_view text);
std::optional<DType> parse_dtype(std::string_view text);
// "backward bf16 2304x36864 weight=f32 bias grads=dx,dweight,dbias alignment=64"
std::string to_string(const Problem& problem);

}  // namespace hipnorm
