// The list of kernel variants: closed, greppable, and the only place that names one.
//
// A variant is one line here and one kernel. Everything else follows from the line: `validate`
// judges by its limits, the cost model enumerates its parameters, `hipnorm-bench --list-variants`,
// the tests and the sweep walk the list. No torch, no HIP: dispatch reads this file too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "csrc/dispatch/device.h"
#include "csrc/dispatch/problem.h"

namespace hipnorm {

// How a variant moves its bytes: what `plan` and the cost model compute with.
enum class Form : std::uint8_t {
  row,         // a compute unit owns whole rows; backward: dW/dB partials beside them (fused)
  split_row,   // several compute units share a row, one exchange of sums
  two_kernel,  // columns reduced first, then rows: x and dy are read twice
  sums_first,  // row sums c1, c2 first, then column strips: x and dy are read twice, any N
};

// Inclusive limits of one parameter. {0, 0} means that the variant has no such parameter and the
// field must be 0.
struct Limits {
  int low = 0;
  int high = 0;
};

struct VariantInfo {
  std::string_view name;
  DeviceKind kind;
  bool forward;         // which ops it can serve …
  bool backward_fused;  // (Op::backward accepts both backward families)
  bool backward_two_kernel;
  Form form;
  Limits threads;         // GPU: threads of a block
  Limits rows_per_block;  // rows whose sums are formed together
  Limits vec_bytes;       // bytes of one vector access
  Limits split;           // compute units (or column strips) that share a row
  Limits parts;           // partial rows P of dW/dB, or tasks that share the rows
  Limits stages;          // rows in flight
  Limits stream;          // 1: stores bypass the caches
  std::string_view summary;
};

// gpu_backward_sums_first is the answer to backward_fused, too, for rows that no fused kernel
// holds: the operator takes every N on every device. The default takes it only there.
// clang-format off
//               name                     kind ops          form        threads rows/block vec_bytes split      parts      stages stream summary
#define HIPNORM_VARIANTS(V)                                                                                                                    \
  V(cpu_forward_row,         cpu, 1, 0, 0, row,        (0, 0), (1, 2), (16, 64), (0, 0),    (1, 4096), (0, 0), (0, 1), "threads share the rows; a row stays in cache between its passes")           \
  V(cpu_forward_split,       cpu, 1, 0, 0, split_row,  (0, 0), (0, 0), (16, 64), (1, 4096), (0, 0),    (0, 0), (0, 1), "threads share each row's columns: few, long rows")                            \
  V(cpu_backward_row,        cpu, 0, 1, 0, row,        (0, 0), (1, 4), (16, 64), (0, 0),    (1, 4096), (0, 0), (0, 1), "one pass over x and dy while the row is in cache; partial dW/dB per part")    \
  V(cpu_backward_two_kernel, cpu, 0, 0, 1, two_kernel, (0, 0), (1, 4), (16, 64), (1, 4096), (1, 4096), (0, 0), (0, 1), "column strips reduce dW/dB, then rows give dX")                               \
  V(cpu_backward_sums_first, cpu, 0, 0, 1, sums_first, (0, 0), (1, 4), (16, 64), (1, 4096), (1, 4096), (0, 0), (0, 1), "row sums first, then column strips write dX and dW/dB: any N, few rows")      \
  V(gpu_forward_wave,        gpu, 1, 0, 0, row,        (64, 256),  (1, 64), (0, 0), (0, 0),  (0, 0),     (0, 0), (0, 0), "several rows a block, each on part of a wave or a wave")                      \
  V(gpu_forward_row,         gpu, 1, 0, 0, row,        (64, 1024), (0, 0),  (0, 0), (0, 0),  (0, 0),     (1, 2), (0, 0), "a block a row, the row in registers; stages=2: persistent, next row in flight") \
  V(gpu_forward_ring,        gpu, 1, 0, 0, split_row,  (64, 992),  (0, 0),  (0, 0), (1, 16), (0, 0),     (2, 8), (0, 0), "persistent, rows pass through a ring in LDS; a row on a cluster of blocks")   \
  V(gpu_forward_stream,      gpu, 1, 0, 0, row,        (64, 512),  (0, 0),  (0, 0), (0, 0),  (0, 0),     (0, 0), (0, 0), "a block a row, which is read twice: any N")                                   \
  V(gpu_backward_wave,       gpu, 0, 1, 0, row,        (64, 256),  (1, 64), (0, 0), (0, 0),  (0, 0),     (0, 0), (0, 0), "persistent, several rows a block, each on part of a wave or a wave")          \
  V(gpu_backward_row,        gpu, 0, 1, 0, row,        (64, 512),  (0, 0),  (0, 0), (0, 0),  (0, 0),     (1, 2), (0, 0), "persistent, a block a row, row and sums in registers")                        \
  V(gpu_backward_ring,       gpu, 0, 1, 0, split_row,  (64, 992),  (1, 4),  (0, 0), (1, 16), (0, 0),     (2, 8), (0, 0), "persistent, rows pass through a ring in LDS; a row on a cluster of blocks")   \
  V(gpu_backward_group,      gpu, 0, 1, 0, split_row,  (64, 1024), (0, 0),  (0, 0), (1, 64), (0, 0),     (0, 0), (0, 0), "persistent, a row on blocks that exchange sums through memory: on request only") \
  V(gpu_backward_two_kernel, gpu, 0, 0, 1, two_kernel, (64, 512),  (0, 0),  (0, 0), (0, 0),  (1, 4096),  (0, 0), (0, 0), "column strips reduce dW/dB, then a block a row gives dX")                     \
  V(gpu_backward_roles,      gpu, 0, 0, 1, two_kernel, (64, 512),  (0, 0),  (0, 0), (0, 0),  (0, 0),     (0, 0), (0, 0), "one launch: some blocks reduce columns, others do rows: few rows")            \
  V(gpu_backward_sums_first, gpu, 0, 1, 1, sums_first, (64, 512),  (0, 0),  (0, 0), (0, 0),  (1, 4096),  (0, 0), (0, 0), "row sums first, then column strips write dX and dW/dB: any N")
// clang-format on

enum class Variant : std::uint8_t {
#define HIPNORM_ENUM(name, ...) name,
  HIPNORM_VARIANTS(HIPNORM_ENUM)
#undef HIPNORM_ENUM
};

inline constexpr VariantInfo kVariants[] = {
#define HIPNORM_INFO(name, kind, forward, fused, two_kernel, form, threads, rows_per_block, \
                     vec_bytes, split, parts, stages, stream, summary)                      \
  {#name,                                                                                   \
   DeviceKind::kind,                                                                        \
   forward,                                                                                 \
   fused,                                                                                   \
   two_kernel,                                                                              \
   Form::form,                                                                              \
   HIPNORM_LIMITS threads,                                                                  \
   HIPNORM_LIMITS rows_per_block,                                                           \
   HIPNORM_LIMITS vec_bytes,                                                                \
   HIPNORM_LIMITS split,                                                                    \
   HIPNORM_LIMITS parts,                                                                    \
   HIPNORM_LIMITS stages,                                                                   \
   HIPNORM_LIMITS stream,                                                                   \
   summary},
#define HIPNORM_LIMITS(low, high) {low, high}
    HIPNORM_VARIANTS(HIPNORM_INFO)
#undef HIPNORM_LIMITS
#undef HIPNORM_INFO
};

// All variants in the list's order, indexed by Variant.
constexpr std::span<const VariantInfo> variants() { return kVariants; }
constexpr const VariantInfo& info(Variant variant) {
  return kVariants[static_cast<std::size_t>(variant)];
}

// Never a default, however fast the cost model thinks it: runs where a table's measured row or a
// forced config names it. backward_group's blocks wait for each other through memory, and nobody
// has seen it run on the hardware that it is for.
constexpr bool on_request_only(Variant variant) { return variant == Variant::gpu_backward_group; }

// Whether the variant serves `op`. Op::backward takes both backward families.
constexpr bool serves(const VariantInfo& variant, Op op) {
  switch (op) {
    case Op::forward: return variant.forward;
    case Op::backward: return variant.backward_fused || variant.backward_two_kernel;
    case Op::backward_fused: return variant.backward_fused;
    case Op::backward_two_kernel: return variant.backward_two_kernel;
  }
  return false;
}

}  // namespace hipnorm
