#include "bench/inputs.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>

namespace hipnorm::bench {
namespace {

constexpr std::uint64_t kSeed = 20260731;

// Elements that are drawn at a time: 32 MiB in f32, instead of a second copy of the whole tensor.
constexpr std::int64_t kChunk = std::int64_t{1} << 23;

void fill_normal(at::Tensor& out, double mean, double deviation, at::Generator& generator) {
  const at::ScalarType drawn = out.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor flat = out.view({-1});
  at::Tensor chunk = at::empty({std::min(kChunk, flat.numel())}, flat.options().dtype(drawn));
  for (std::int64_t begin = 0; begin < flat.numel(); begin += kChunk) {
    const std::int64_t length = std::min(kChunk, flat.numel() - begin);
    at::Tensor part = chunk.narrow(0, 0, length);
    part.normal_(mean, deviation, generator);
    flat.narrow(0, begin, length).copy_(part);
  }
}

}  // namespace

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return at::kFloat;
    case DType::f16: return at::kHalf;
    case DType::bf16: return at::kBFloat16;
    case DType::f64: return at::kDouble;
    case DType::none: break;
  }
  TORCH_CHECK(false, "expected a dtype of tensors, got 'none'");
}

Inputs make_inputs(const Shape& shape, DType dtype, at::Device device, bool with_dy) {
  const at::TensorOptions options = at::device(device).dtype(scalar_type(dtype));
  // A GPU draws its own: 3·10⁹ numbers would take the processor half a minute.
  at::Generator generator = at::detail::createCPUGenerator(kSeed);
  if (!device.is_cpu()) {
    generator = at::globalContext().defaultGenerator(device);
    generator.set_current_seed(kSeed);
  }
  Inputs inputs{.shape = shape,
                .dtype = dtype,
                .x = at::empty({shape.rows, shape.cols}, options),
                .dy = {},
                .weight = at::empty({shape.cols}, options),
                .bias = at::empty({shape.cols}, options)};
  fill_normal(inputs.weight, 0, 1, generator);
  fill_normal(inputs.bias, 0, 1, generator);
  fill_normal(inputs.x, -2.3, 0.5, generator);
  if (with_dy) {
    inputs.dy = at::empty({shape.rows, shape.cols}, options);
    fill_normal(inputs.dy, 0, 1, generator);
  }
  return inputs;
}

std::int64_t needed_bytes(const Shape& shape, DType dtype, bool with_dy, int threads) {
  const double rows = static_cast<double>(shape.rows);
  const double cols = static_cast<double>(shape.cols);
  const double tensors = rows * cols * size_of(dtype) * (with_dy ? 4 : 3);
  const double statistics = rows * 8 * 4;         // mean and rstd of both sides
  const double judge = cols * 16 * 14 * threads;  // 14 arrays of at most 16 bytes an element
  const double chunks = 64.0 * 1024 * 1024;  // of the random numbers, and whatever else is small
  const double bytes = tensors + statistics + judge + chunks;
  return bytes < 9e18 ? static_cast<std::int64_t>(bytes) : std::numeric_limits<std::int64_t>::max();
}

}  // namespace hipnorm::bench
