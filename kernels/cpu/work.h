// What one CPU kernel call works on, and the table of kernels that every instruction set fills.
#pragma once

#include <cstdint>

#include "csrc/dispatch/problem.h"

namespace hipnorm::cpu {

// A strip is a range of columns that one task handles. Strips start at multiples of 64 elements: a
// whole number of packets of every type and instruction set, and of cache lines of an aligned row.
inline constexpr std::int64_t kStripAlignment = 64;

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Range number `index` of `count` that together cover [0, size); sizes differ by at most one
// `unit`.
constexpr Range subrange(std::int64_t size, std::int64_t count, std::int64_t index,
                         std::int64_t unit = 1) {
  const std::int64_t units = (size + unit - 1) / unit;
  const std::int64_t each = units / count, longer = units % count;
  const auto begin = [&](std::int64_t i) {
    const std::int64_t at = (i * each + (i < longer ? i : longer)) * unit;
    return at < size ? at : size;
  };
  return {begin(index), begin(index + 1)};
}

// T is the element type, A its arithmetic type, W the parameters' type, T or A. Parameters of type
// A and the partial sums are in packet order (packet.h). All pointers to rows may have any
// alignment that fits T.
struct ForwardWork {
  const void* x = nullptr;  // T [rows, cols]
  std::int64_t x_stride = 0;
  const void* weight = nullptr;                 // W [weight_size] or null
  const void* bias = nullptr;                   // W [bias_size] or null
  std::int64_t weight_size = 0, bias_size = 0;  // cols where used in place, else the pitch
  void* y = nullptr;                            // T [rows, cols], contiguous
  void* mean = nullptr;                         // A [rows]
  void* rstd = nullptr;                         // A [rows]
  std::int64_t rows = 0, cols = 0;
  double eps = 0;
  int rows_per_block = 1;
  bool stream = false;        // stores of y bypass the caches
  std::int64_t strips = 1;    // split_row: strips that share a row
  double* moments = nullptr;  // split_row: [strips, rows, 2]: mean and centred sum of squares
};

struct BackwardWork {
  const void* dy = nullptr;  // T [rows, cols]
  std::int64_t dy_stride = 0;
  const void* x = nullptr;  // T [rows, cols]
  std::int64_t x_stride = 0;
  const void* mean = nullptr;    // A [rows]
  const void* rstd = nullptr;    // A [rows]
  const void* weight = nullptr;  // W [weight_size] or null
  std::int64_t weight_size = 0;  // cols where used in place, else the pitch
  void* dx = nullptr;            // T [rows, cols], contiguous, or null
  void* dweight = nullptr;       // A [parts, pitch] or null
  void* dbias = nullptr;         // A [parts, pitch] or null
  std::int64_t rows = 0, cols = 0, pitch = 0;
  bool stream = false;  // stores of dx bypass the caches
  int rows_per_block = 1;
  bool fetch_near = false;  // a little ahead, not the next rows: caches do not hold both
  std::int64_t parts = 1;   // ranges of rows
  std::int64_t strips = 1;  // ranges of columns
  double* sums = nullptr;   // sums_first: [strips, rows, 2]: Σg and Σg·x̂ of a strip
};

// The kernels of one instruction set for one T and W.
struct Kernels {
  // Whole rows: statistics, then y.
  void (*forward_rows)(const ForwardWork&, Range rows);
  // split_row, phase 1: moments of one strip of every row. Phase 2: y of that strip; strip 0 also
  // writes mean and rstd.
  void (*forward_strip_moments)(const ForwardWork&, std::int64_t strip);
  void (*forward_strip_apply)(const ForwardWork&, std::int64_t strip);

  // Fused: dx and the part's row of dweight and dbias in one pass. A gradient whose pointer is null
  // is not computed.
  void (*backward_rows)(const BackwardWork&, std::int64_t part);
  // dweight and dbias of one part and strip.
  void (*backward_columns)(const BackwardWork&, std::int64_t part, std::int64_t strip);
  // dx of one part, row by row.
  void (*backward_rows_dx)(const BackwardWork&, std::int64_t part);
  // sums_first, phase 1: sums of one strip of every row. Phase 2: dx, dweight, dbias of one part
  // and strip.
  void (*backward_strip_sums)(const BackwardWork&, std::int64_t strip);
  void (*backward_strip_apply)(const BackwardWork&, std::int64_t part, std::int64_t strip);

  // Sums parts rows of `partial` (A [parts, pitch], packet order) in their order, into `out`
  // ([cols] of dtype `type`), for the columns in `columns` (begin: multiple of kStripAlignment).
  void (*reduce_parts)(const void* partial, std::int64_t parts, std::int64_t pitch, void* out,
                       DType type, Range columns);
  // A parameter (A [cols]) into packet order, zero up to `pitch`. Only bf16 has an order other than
  // the natural one.
  void (*pack_parameter)(const void* parameter, void* packed, std::int64_t cols,
                         std::int64_t pitch);
};

// Null where this build has no such kernels (another processor family).
const Kernels* baseline_kernels(DType x, DType weight);  // 16-byte vectors, any processor
const Kernels* avx2_kernels(DType x, DType weight);      // 32: AVX2, FMA, F16C
const Kernels* avx512_kernels(DType x, DType weight);    // 64: AVX-512 F, BW, VL, DQ

}  // namespace hipnorm::cpu
