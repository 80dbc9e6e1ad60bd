// Prints the registers that the cost model assumes for each instance of a persistent kernel on
// CDNA: kernel, packets a lane, element, whether weights are f32 beside 16-bit elements, registers.
// check_resources.py compares them with the compiler's.
#include <cstdio>

#include "csrc/dispatch/gpu.h"
#include "csrc/dispatch/known_devices.h"
#include "kernels/gpu/instances.h"

namespace hipnorm {
namespace {

struct Persistent {
  Variant variant;
  const char* kernel;
  Op op;
  int stages = 0;
};
constexpr Persistent kPersistent[] = {
    {Variant::gpu_forward_row, "forward_row_kernel", Op::forward},
    {Variant::gpu_backward_wave, "backward_wave_kernel", Op::backward_fused},
    {Variant::gpu_backward_row, "backward_row_kernel", Op::backward_fused},
    {Variant::gpu_backward_group, "backward_group_kernel", Op::backward_fused},
    {Variant::gpu_forward_row, "forward_packets_kernel", Op::forward, 2},
    {Variant::gpu_backward_row, "backward_packets_kernel", Op::backward_fused, 2},
};
struct Element {
  DType type;
  const char* name;
};
constexpr Element kElements[] = {
    {DType::f32, "float"}, {DType::f64, "double"}, {DType::f16, "f16"}, {DType::bf16, "bf16"}};

void print(const Persistent& persistent, const Element& element, bool wide,
           const GpuLimits& limits) {
  Problem problem;
  problem.op = persistent.op;
  problem.x = element.type;
  problem.weight = wide ? DType::f32 : element.type;
  problem.rows = problem.cols = 1024;
  problem.has_weight = true;
  problem.grads = {true, true, true};
  Config config{.variant = persistent.variant, .threads = 256};
  config.rows_per_block = is_wave_variant(persistent.variant) ? 4 : 0;
  config.stages = persistent.stages;
  config.split = persistent.variant == Variant::gpu_backward_group ? 2 : 0;
  GpuKernel kernel(config, problem, limits);
  if (persistent.stages > 1 && !kernel.packets) return;
  for (const gpu::Instance& instance : kernel.instances) {
    if (limits.bound(instance) == 0) continue;
    kernel.instance = &instance;
    std::printf("%s %d %s %d %d\n", persistent.kernel, instance.vectors, element.name, wide,
                registers_of(kernel, problem, limits));
  }
}

}  // namespace
}  // namespace hipnorm

int main() {
  using namespace hipnorm;
  const GpuLimits limits(known_device("MI300X"));
  for (const Persistent& persistent : kPersistent) {
    for (const Element& element : kElements) {
      if (persistent.variant == Variant::gpu_backward_group && element.type == DType::f64) continue;
      print(persistent, element, false, limits);
      if (size_of(element.type) == 2 && persistent.stages > 1) {
        print(persistent, element, true, limits);
      }
    }
  }
}
