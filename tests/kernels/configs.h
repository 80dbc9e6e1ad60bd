// Which kernels the tests walk, with which parameters, on which shapes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "csrc/dispatch/config.h"
#include "csrc/dispatch/problem.h"
#include "kernels/variants.h"

namespace hipnorm::testing {

// HIPNORM_TEST_QUICK=1 in the environment, or in the emulator: fewer shapes and combinations.
bool quick();

// One instance of a kernel. `op` is the op that fixes the variant's family.
struct Kernel {
  Variant variant;
  Op op;
  DType x;
  DType weight;
};
// Every variant of the device's kind × dtype × weight dtype (x's, or f32 for 16-bit x).
std::vector<Kernel> forward_kernels();
std::vector<Kernel> backward_kernels();
// In the emulator two thirds of them: 16-bit x once with weights of its own type, once with f32.
std::vector<Kernel> affordable(std::vector<Kernel> kernels);
// Only those with x and weight of the given dtypes.
std::vector<Kernel> only(std::vector<Kernel> kernels, DType x, DType weight);
// "cpu_forward_row_bf16_f32", a name for GoogleTest.
std::string name_of(const Kernel& kernel);

// Vector widths that this processor has: 16, 32, 64 as far as they go.
std::vector<int> vector_widths();

// Configs of one variant, all valid for the problem; for a CPU variant never empty. A GPU variant
// may not take a problem, its rows being too wide for the registers, say; variants_test.cpp counts
// what each takes.
enum class Effort {
  one,   // CPU: one for each vector width
  few,   // CPU: for each width one task; more parts and strips than threads, uneven; streaming
         // stores
  many,  // every combination of few values of each parameter
};
// GPU: one, few: so many of the valid combinations, others on every problem.
std::vector<Config> configs_for(Variant variant, const Problem& problem, Effort effort);

// What the cost model would choose from; on a GPU as many as a test has time for.
std::vector<Config> candidates_for(const Problem& problem);

struct Shape {
  std::int64_t rows;
  std::int64_t cols;
};
// Odd ones first. The large ones are run with fewer combinations.
std::span<const Shape> small_shapes();
std::span<const Shape> large_shapes();
// Rows of whole packets of 16 bytes, as backward_group wants them.
std::span<const Shape> packet_shapes();

// Columns where equal rows must give equal bits. A GPU's lanes take the chunks of a row by the
// alignment of its output row, so there whole chunks only.
std::int64_t expanded_cols();

inline constexpr GradMask kAllGradMasks[] = {
    {true, true, true},  {true, true, false},  {true, false, true},  {true, false, false},
    {false, true, true}, {false, true, false}, {false, false, true}, {false, false, false}};
inline constexpr GradMask kAllGrads = kAllGradMasks[0];

}  // namespace hipnorm::testing
