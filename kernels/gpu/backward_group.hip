// backward_group: a row on the blocks of a group, which tell each other their parts of c1 and c2
// through memory. For devices without clusters: however wide the rows, a lane keeps the column sums
// of a few packets only, and there are as few partial rows as groups, 16·N bytes each (2304x36864
// bf16 on MI300X: 304 partial rows would be 35 % of all traffic, 16 are 2 %).
//
// A block owns a strip of columns, a wave of it rows of its own: the loop has no barrier. One step
// of a wave, row i, in the order of its accesses to memory (AMD returns loads in their order):
//   sums of row i, begun;  asks for the others' sums of row i − 1;  loads row i + 1;
//   sums of row i, ended;  posts them;  has the others' sums of row i − 1;  writes dx of row i − 1
// So three rows are held, a row is always under way, and the others have a whole step to post what
// is asked for here. All blocks of the grid must run at the same time: a cooperative launch, or, if
// the runtime refuses that, backward_sums_first in the same workspace.
#include "kernels/gpu/agent.h"
#include "kernels/gpu/backward_row.h"
#include "kernels/gpu/buffer.h"
#include "kernels/gpu/columns_layout.h"
#include "kernels/gpu/group_layout.h"
#include "kernels/gpu/instance_of.h"
#include "kernels/gpu/prepare.h"
#include "kernels/gpu/reduce.h"

namespace hipnorm::gpu {
namespace {

struct BackwardGroupArgs {
  const char* dy;
  const char* x;           // null: only dbias is asked for
  std::int64_t dy_stride;  // bytes
  std::int64_t x_stride;
  const float* mean;
  const float* rstd;
  Parameter weight;
  char* dx;        // null: not asked for
  float* dweight;  // [groups, pitch]; null: not asked for
  float* dbias;
  std::uint64_t* slots;  // [rows, members], kEmpty
  std::int64_t rows;
  std::int64_t pitch;
  int cols;
  int slice;  // packets of a member's strip
  int members;
  int groups;
  int dies;  // groups lie within one: blocks go to them in turn
};

// A slot holds two floats, bits inverted: zeros, which it has before, would be a NaN that is never
// posted. So the 8 bytes say themselves whether they are there.
[[maybe_unused]] constexpr std::uint64_t kEmpty = 0;

[[maybe_unused]] __device__ __forceinline__ void post(std::uint64_t* slot, float a, float b) {
  const std::uint32_t first = a == a ? bits_as<std::uint32_t>(a) : 0x7fc00000u;
  agent_store(slot, ~(first | static_cast<std::uint64_t>(bits_as<std::uint32_t>(b)) << 32));
}
[[maybe_unused]] __device__ __forceinline__ float posted_float(std::uint64_t bits) {
  return bits_as<float>(~static_cast<std::uint32_t>(bits));
}

template <class T, int V>
struct Held {
  Packet x[V];
  Packet dy[V];
  Saved<float> saved;
};

template <class T, int V, bool kWide>
class Strip {
 public:
  static constexpr int E = kElements<T>;
  static constexpr int kPackets = kWide ? E / kElements<float> : 1;  // of weights, of a packet of x

  __device__ __forceinline__ explicit Strip(const BackwardGroupArgs& args)
      : a(args),
        lane(static_cast<int>(threadIdx.x) % kWave),
        wave(uniform(static_cast<int>(threadIdx.x) / kWave)),
        waves(static_cast<int>(blockDim.x) / kWave) {
    const int block = static_cast<int>(blockIdx.x);
    const int on_die = block / a.dies;
    member = on_die % a.members;
    group = on_die / a.members * a.dies + block % a.dies;
    const int first = member * a.slice;
    const int left = a.cols / E - first;
    first_byte = first * 16;
    bytes = (left < a.slice ? left : a.slice) * 16;
    first_row = std::int64_t{group} * waves + wave;
    row_step = std::int64_t{a.groups} * waves;
  }

  __device__ __forceinline__ void run() {
    load_weights();
    Held<T, V> held[3];
    held[0].saved = saved(first_row);
    load(held[0], first_row);
#pragma unroll
    for (int v = 0; v < V; ++v) held[2].x[v] = held[2].dy[v] = zero_packet();
    held[2].saved = {};
    // Stores of no row, which are dropped: the loop is entered with as many accesses under way as
    // it has when it comes round. AMD waits for a number of them, the least of both ways in.
    write_dx(held[2], -1, 0, 0);
    // One step more than rows, which only writes dx. Rows beyond the end are empty.
    for (std::int64_t row = first_row; row - row_step < a.rows; row += 3 * row_step) {
      step(row, held[0], held[1], held[2]);
      step(row + row_step, held[1], held[2], held[0]);
      step(row + 2 * row_step, held[2], held[0], held[1]);
    }
    write_partial_row(dweight, a.dweight);
    write_partial_row(dbias, a.dbias);
  }

 private:
  __device__ __forceinline__ Buffer strip_of(const char* rows, std::int64_t stride,
                                             std::int64_t row) const {
    const bool here = rows != nullptr && row >= 0 && row < a.rows;
    return {rows + (here ? row : 0) * stride + first_byte, here ? bytes : 0};
  }
  __device__ __forceinline__ int offset(int v) const { return (v * kWave + lane) * 16; }

  // 0 beyond the last row, where dy is 0, too: no row's NaN may come from there.
  __device__ __forceinline__ Saved<float> saved(std::int64_t row) const {
    const bool here = row < a.rows;
    const std::int64_t at = here ? row : 0;
    const float mean = load_uniform(a.mean, at), rstd = load_uniform(a.rstd, at);
    return {here ? mean : 0, here ? rstd : 0};
  }
  __device__ __forceinline__ void load(Held<T, V>& held, std::int64_t row) const {
    const Buffer x = strip_of(a.x, a.x_stride, row), dy = strip_of(a.dy, a.dy_stride, row);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      held.x[v] = x.load(offset(v));
      held.dy[v] = dy.load(offset(v));
      schedule_here();
    }
  }

  // The strip's weights come into LDS, which the waves share; zero beyond the row.
  __device__ __forceinline__ void load_weights() {
    const Lds<Packet> lds = lds_at<Packet>(0);
    for (int v = wave; v < V; v += waves) {
      const int column = (member * a.slice + v * kWave + lane) * E;
      const bool here = offset(v) < bytes;
      float w[E];
      load_parameter<T>(a.weight, {column, 0, here ? E : 0}, 1, w);
#pragma unroll
      for (int k = 0; k < kPackets; ++k) {
        Packet packet;
        if constexpr (kWide) {
          float part[kElements<float>];
#pragma unroll
          for (int i = 0; i < kElements<float>; ++i) part[i] = w[k * kElements<float> + i];
          packet = pack<float>(part);
        } else {
          packet = pack<T>(w);
        }
        lds[(v * kPackets + k) * kWave + lane] = packet;
      }
    }
    __syncthreads();
  }
  struct Weights {
    Packet packet[kPackets];
    __device__ __forceinline__ float operator[](int i) const {
      if constexpr (kWide) return element<float>(packet[i / 4], i % 4);
      return element<T>(packet[0], i);
    }
  };
  __device__ __forceinline__ Weights weights(int v) const {
    Weights w;
#pragma unroll
    for (int k = 0; k < kPackets; ++k) {
      w.packet[k] = lds_at<Packet>(0)[(v * kPackets + k) * kWave + lane];
    }
    return w;
  }

  __device__ __forceinline__ void step(std::int64_t row, Held<T, V>& now, Held<T, V>& next,
                                       Held<T, V>& before) {
    const std::int64_t row_before = row - row_step;
    const bool asks = row_before >= 0 && row_before < a.rows;
    const std::uint64_t* slot =
        a.slots + (asks ? row_before : 0) * a.members + (lane < a.members ? lane : a.members - 1);
    std::uint64_t posted = 0;

    next.saved = saved(row + row_step);
    schedule_here();
    now.saved = usable_part(now.saved);
    float s1 = 0, s2 = 0;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      Weights w = weights(v);
      forget_unpacked(now.x[v]);
      forget_unpacked(now.dy[v]);
#pragma unroll
      for (int k = 0; k < kPackets; ++k) forget_unpacked(w.packet[k]);
      // Beyond the row x and dy are 0: −mean, times rstd, might overflow.
      const Saved<float> used = {offset(v) < bytes ? now.saved.mean : 0, now.saved.rstd};
#pragma unroll
      for (int i = 0; i < E; ++i) {
        const float d = element<T>(now.dy[v], i);
        const float normalised = used.normalised(element<T>(now.x[v], i));
        const float gradient = product(d, w[i]);
        dbias[v][i] += d;
        dweight[v][i] += d * normalised;
        s1 += gradient;
        s2 += gradient * normalised;
      }
      pin(dweight[v]);
      pin(dbias[v]);
      schedule_here();
      if (v == 0) {
        posted = agent_load(slot);
        schedule_here();
        load(next, row + row_step);
        schedule_here();
      }
    }

    s1 = wave_sum(s1);
    s2 = wave_sum(s2);
    if (lane == 0 && row < a.rows) post(a.slots + row * a.members + member, s1, s2);
    schedule_here();
    while (asks && posted == kEmpty) posted = agent_load(slot);
    const bool mine = asks && lane < a.members;
    const float c1 = wave_sum(mine ? posted_float(posted) : 0);
    const float c2 = wave_sum(mine ? posted_float(posted >> 32) : 0);
    write_dx(before, row_before, c1 / static_cast<float>(a.cols), c2 / static_cast<float>(a.cols));
  }

  __device__ __forceinline__ void write_dx(Held<T, V>& held, std::int64_t row, float c1, float c2) {
    const Buffer dx = strip_of(a.dx, std::int64_t{a.cols} * std::int64_t{sizeof(T)}, row);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      forget_unpacked(held.x[v]);
      forget_unpacked(held.dy[v]);
      Weights w = weights(v);
#pragma unroll
      for (int k = 0; k < kPackets; ++k) forget_unpacked(w.packet[k]);
      float out[E];
#pragma unroll
      for (int i = 0; i < E; ++i) {
        const float gradient = product(element<T>(held.dy[v], i), w[i]);
        const float normalised = held.saved.normalised(element<T>(held.x[v], i));
        out[i] = (gradient - c1 - normalised * c2) * held.saved.rstd;
      }
      dx.store(offset(v), pack<T>(out));
      schedule_here();
    }
  }

  // The waves' sums are added in their order and written as the group's partial row.
  __device__ __forceinline__ void write_partial_row(const float (&sums)[V][E], float* parts) const {
    if (parts == nullptr) return;
    constexpr int kColumns = kWave * E;  // of one packet of the wave
    const Lds<float> lds = lds_at<float>(std::size_t{V} * kPackets * kWave * 16);
    float* row = parts + group * a.pitch + std::int64_t{member} * a.slice * E;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      __syncthreads();
#pragma unroll
      for (int i = 0; i < E; i += 4) {
        float part[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) part[j] = sums[v][i + j];
        lds_cast<Packet>(lds)[(wave * kColumns + lane * E + i) / 4] = pack<float>(part);
      }
      __syncthreads();
      const int columns = bytes / 16 * E - v * kColumns;  // of the strip, from this packet on
      for (int c = static_cast<int>(threadIdx.x); c < kColumns && c < columns;
           c += static_cast<int>(blockDim.x)) {
        float sum = 0;
        for (int w = 0; w < waves; ++w) sum += lds[w * kColumns + c];
        row[v * kColumns + c] = sum;
      }
    }
  }

  const BackwardGroupArgs& a;
  int lane, wave, waves;
  int member, group;
  int first_byte, bytes;  // of the strip in a row
  std::int64_t first_row, row_step;
  float dweight[V][E] = {}, dbias[V][E] = {};
};

template <class T>
inline constexpr const auto& kInstances = kBackwardGroup;
template <>
[[maybe_unused]] inline constexpr const auto& kInstances<f16> = kBackwardGroupF16;

template <class T, int V, bool kWide>
__global__ void __launch_bounds__(launch_bound(kInstances<T>, V))
    backward_group_kernel(BackwardGroupArgs args) {
  Strip<T, V, kWide>(args).run();
}

using Kernel = void (*)(BackwardGroupArgs);
template <class T, int V>
Kernel group_kernel(const Problem& p) {
  if constexpr (sizeof(T) == 2) {
    if (p.weight == DType::f32) return backward_group_kernel<T, V, true>;
  }
  return backward_group_kernel<T, V, false>;
}

// Nothing has been queued.
[[maybe_unused]] bool refused(hipError_t error) {
  return error == hipErrorCooperativeLaunchTooLarge || error == hipErrorNotSupported;
}

// Needs a pair for each row and no more partial rows than there are groups.
template <class T>
hipError_t instead(const BackwardArgs& args, const Launch& launch) {
#if !defined(HIPNORM_EMULATED)
  static_cast<void>(hipGetLastError());
#endif
  Config config{.variant = Variant::gpu_backward_sums_first, .threads = 512};
  const std::int64_t strips = column_strips(config.variant, launch.problem, config.threads);
  const std::int64_t parts = 2 * launch.device.compute_units / strips;
  config.parts = static_cast<int>(std::clamp<std::int64_t>(parts, 1, launch.plan.groups));
  const Plan plan = hipnorm::plan(config, launch.problem, launch.device);
  if (plan.workspace_bytes > launch.plan.workspace_bytes) return hipErrorInvalidConfiguration;
  return backward_sums_first<T>(args, {.problem = launch.problem,
                                       .device = launch.device,
                                       .config = config,
                                       .plan = plan,
                                       .stream = launch.stream});
}

template <class T>
hipError_t launch_group(const BackwardArgs& args, const Launch& launch) {
  const Problem& p = launch.problem;
  const Plan& plan = launch.plan;
  const int split = launch.config.split;
  const auto stream = static_cast<hipStream_t>(launch.stream);
  char* workspace = static_cast<char*>(args.workspace);
  const auto partial = [&](bool wanted, std::int64_t offset) {
    return wanted ? reinterpret_cast<float*>(workspace + offset) : nullptr;
  };
  const bool together = launch.device.dies > 0 && plan.groups % launch.device.dies == 0;
  const BackwardGroupArgs kernel_args = {
      .dy = static_cast<const char*>(args.dy),
      .x = p.grads.dx || p.grads.dweight ? static_cast<const char*>(args.x) : nullptr,
      .dy_stride = args.dy_stride * std::int64_t{sizeof(T)},
      .x_stride = args.x_stride * std::int64_t{sizeof(T)},
      .mean = static_cast<const float*>(args.mean),
      .rstd = static_cast<const float*>(args.rstd),
      .weight = {p.grads.dx ? args.weight : nullptr, p.weight != p.x},
      .dx = p.grads.dx ? static_cast<char*>(args.dx) : nullptr,
      .dweight = partial(p.grads.dweight, plan.dweight_offset),
      .dbias = partial(p.grads.dbias, plan.dbias_offset),
      .slots = reinterpret_cast<std::uint64_t*>(workspace + plan.sums_offset),
      .rows = p.rows,
      .pitch = plan.pitch,
      .cols = static_cast<int>(p.cols),
      .slice = static_cast<int>(group_slice(chunks_of_row(p), split)),
      .members = split,
      .groups = static_cast<int>(plan.groups),
      .dies = together ? launch.device.dies : 1,
  };
  const auto slots_bytes = static_cast<std::size_t>(group_slots_bytes(p.rows, split));
  hipError_t error = hipMemsetAsync(kernel_args.slots, 0, slots_bytes, stream);
  if (error != hipSuccess) return error;
  const Grid grid = {.blocks = plan.tasks,
                     .threads = plan.threads,
                     .lds_bytes = static_cast<std::size_t>(plan.lds_bytes),
                     .cooperative = true,
                     .stream = stream};
  error = with_vectors<T, kInstances<T>>(plan.vectors, [&]<int V>() {
    return launch_kernel(group_kernel<T, V>(p), grid, kernel_args);
  });
  if (refused(error)) return instead<T>(args, launch);
  if (error != hipSuccess || !p.grads.columns()) return error;
  return reduce_parts<T>(args, launch);
}

}  // namespace

template <class T>
hipError_t backward_group(const BackwardArgs& args, const Launch& launch) {
  if constexpr (sizeof(T) <= 4) {
    return launch_group<T>(args, launch);
  } else {
    return hipErrorInvalidConfiguration;
  }
}

template <class T>
int backward_group_resident(const Config& config, const Plan& plan, const Problem& problem,
                            const Device& device) {
  int blocks = 0;
  if constexpr (sizeof(T) <= 4) {
    static_cast<void>(with_vectors<T, kInstances<T>>(plan.vectors, [&]<int V>() {
      blocks = resident_clusters(group_kernel<T, V>(problem), device, plan.threads,
                                 static_cast<std::size_t>(plan.lds_bytes));
      return hipSuccess;
    }));
  }
  return blocks / config.split;
}

template hipError_t backward_group<HIPNORM_ELEMENT>(const BackwardArgs&, const Launch&);
template int backward_group_resident<HIPNORM_ELEMENT>(const Config&, const Plan&, const Problem&,
                                                      const Device&);

}  // namespace hipnorm::gpu
