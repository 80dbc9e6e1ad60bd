// Launch functions of the CPU variants: from arguments, config and plan to parallel phases.
#include <algorithm>
#include <string>

#include "csrc/dispatch/cost_model.h"
#include "kernels/backends.h"
#include "kernels/cpu/work.h"

namespace hipnorm::cpu {
namespace {

const Kernels* kernels_of(const Launch& launch) {
  const DType x = launch.problem.x, weight = launch.problem.weight;
  switch (launch.config.vec_bytes) {
    case 64: return avx512_kernels(x, weight);
    case 32: return avx2_kernels(x, weight);
    default: return baseline_kernels(x, weight);
  }
}

// Runs body(i) for i in [0, tasks), on the caller's threads where there is more than one.
template <class Body>
void run(const Launch& launch, std::int64_t tasks, const Body& body) {
  if (tasks == 1) {
    body(std::int64_t{0});
    return;
  }
  launch.parallel_for(
      tasks, [](void* data, std::int64_t i) { (*static_cast<const Body*>(data))(i); },
      const_cast<Body*>(&body));
}

char* at(void* workspace, std::int64_t offset) { return static_cast<char*>(workspace) + offset; }

// The parameter as the kernels read it: the caller's own, or a copy in packet order in the
// workspace. `size` becomes the number of readable elements.
const void* packed_parameter(const void* parameter, const Launch& launch, const Kernels& kernels,
                             void* workspace, std::int64_t offset, std::int64_t& size) {
  const Problem& p = launch.problem;
  size = p.cols;
  if (parameter == nullptr || !repacks_parameters(p)) return parameter;
  size = launch.plan.pitch;
  void* packed = at(workspace, offset);
  kernels.pack_parameter(parameter, packed, p.cols, size);
  return packed;
}

}  // namespace

Error launch_forward(const ForwardArgs& args, const Launch& launch) {
  const Problem& p = launch.problem;
  const Config& c = launch.config;
  const Kernels* kernels = kernels_of(launch);
  if (kernels == nullptr) return failure(launch, "this build has no kernels for it");
  ForwardWork w;
  w.x = args.x;
  w.x_stride = args.x_stride;
  w.y = args.y;
  w.mean = args.mean;
  w.rstd = args.rstd;
  w.rows = p.rows;
  w.cols = p.cols;
  w.eps = args.eps;
  w.rows_per_block = c.rows_per_block;
  w.stream = c.stream != 0;
  w.weight = packed_parameter(args.weight, launch, *kernels, args.workspace,
                              launch.plan.weight_offset, w.weight_size);
  w.bias = packed_parameter(args.bias, launch, *kernels, args.workspace, launch.plan.bias_offset,
                            w.bias_size);
  switch (c.variant) {
    case Variant::cpu_forward_row:
      run(launch, c.parts,
          [&](std::int64_t part) { kernels->forward_rows(w, subrange(p.rows, c.parts, part)); });
      return {};
    case Variant::cpu_forward_split:
      w.strips = c.split;
      w.moments = reinterpret_cast<double*>(at(args.workspace, launch.plan.sums_offset));
      run(launch, c.split, [&](std::int64_t strip) { kernels->forward_strip_moments(w, strip); });
      run(launch, c.split, [&](std::int64_t strip) { kernels->forward_strip_apply(w, strip); });
      return {};
    default: return failure(launch, "not a forward variant of the CPU");
  }
}

Error launch_backward(const BackwardArgs& args, const Launch& launch) {
  const Problem& p = launch.problem;
  const Config& c = launch.config;
  const Kernels* kernels = kernels_of(launch);
  if (kernels == nullptr) return failure(launch, "this build has no kernels for it");
  BackwardWork w;
  w.dy = args.dy;
  w.dy_stride = args.dy_stride;
  w.x = args.x;
  w.x_stride = args.x_stride;
  w.mean = args.mean;
  w.rstd = args.rstd;
  w.dx = p.grads.dx ? args.dx : nullptr;
  if (p.grads.dweight) w.dweight = at(args.workspace, launch.plan.dweight_offset);
  if (p.grads.dbias) w.dbias = at(args.workspace, launch.plan.dbias_offset);
  w.rows = p.rows;
  w.cols = p.cols;
  w.pitch = launch.plan.pitch;
  w.stream = c.stream != 0;
  w.rows_per_block = c.rows_per_block;
  w.fetch_near = !block_stays_in_cache(c, p, launch.device);
  w.parts = c.parts;
  w.weight = packed_parameter(args.weight, launch, *kernels, args.workspace,
                              launch.plan.weight_offset, w.weight_size);

  switch (c.variant) {
    case Variant::cpu_backward_row:
      if (p.grads.dx || p.grads.columns()) {
        run(launch, c.parts, [&](std::int64_t part) { kernels->backward_rows(w, part); });
      }
      break;
    case Variant::cpu_backward_two_kernel:
      if (p.grads.columns()) {
        w.strips = c.split;
        run(launch, std::int64_t{c.parts} * c.split,
            [&](std::int64_t i) { kernels->backward_columns(w, i / c.split, i % c.split); });
      }
      if (p.grads.dx) {
        run(launch, c.parts, [&](std::int64_t part) { kernels->backward_rows_dx(w, part); });
      }
      break;
    case Variant::cpu_backward_sums_first:
      w.strips = c.split;
      if (p.grads.dx) {
        w.sums = reinterpret_cast<double*>(at(args.workspace, launch.plan.sums_offset));
        run(launch, c.split, [&](std::int64_t strip) { kernels->backward_strip_sums(w, strip); });
      }
      if (p.grads.dx || p.grads.columns()) {
        run(launch, std::int64_t{c.parts} * c.split,
            [&](std::int64_t i) { kernels->backward_strip_apply(w, i / c.split, i % c.split); });
      }
      break;
    default: return failure(launch, "not a backward variant of the CPU");
  }

  if (p.grads.columns()) {
    // 16K sums are about 10 µs of one core: fewer are not worth waking another.
    constexpr std::int64_t kSumsPerTask = 16384;
    const std::int64_t groups = (p.cols + kStripAlignment - 1) / kStripAlignment;
    const std::int64_t tasks = std::clamp<std::int64_t>(
        std::min(p.cols * c.parts / kSumsPerTask, groups), 1, launch.device.compute_units);
    run(launch, tasks, [&](std::int64_t task) {
      const Range columns = subrange(p.cols, tasks, task, kStripAlignment);
      if (p.grads.dweight) {
        kernels->reduce_parts(w.dweight, c.parts, w.pitch, args.dweight, p.weight, columns);
      }
      if (p.grads.dbias) {
        kernels->reduce_parts(w.dbias, c.parts, w.pitch, args.dbias, p.weight, columns);
      }
    });
  }
  return {};
}

}  // namespace hipnorm::cpu
