// reduce_parts: the last step of every backward that sums columns.
#include <algorithm>

#include "kernels/gpu/launchers.h"
#include "kernels/gpu/row.h"

namespace hipnorm::gpu {
namespace {

constexpr int kThreads = 256;
// Partial rows that a lane has under way at once.
constexpr int kUnroll = 8;

struct ReduceArgs {
  const void* parts[2];  // [count, pitch] of dweight and dbias; null: not asked for
  void* out[2];          // [cols]
  int count;
  unsigned tiles;  // blocks of one output
  std::int64_t pitch;
  std::int64_t cols;
  int lanes_log2;  // lanes side by side, one packet of columns each; the others take other rows
  bool wide;       // out has the accumulate type
};

// A block owns 2^lanes_log2 packets of columns of one output. Its threads form a grid of that many
// lanes across and kThreads >> lanes_log2 down; those of one column add rows d, d + down, … each,
// then their sums are added, in the wave by shuffles, over the waves in their order.
template <class T>
__global__ void __launch_bounds__(kThreads) reduce_parts_kernel(ReduceArgs a) {
  using A = accumulate_t<T>;
  constexpr int E = kElements<A>;
  const int lanes = 1 << a.lanes_log2, down = kThreads >> a.lanes_log2;
  const bool beyond = blockIdx.x >= a.tiles;
  const bool second = a.parts[0] == nullptr || beyond;
  const std::int64_t tile = beyond ? blockIdx.x - a.tiles : blockIdx.x;
  const A* parts = static_cast<const A*>(second ? a.parts[1] : a.parts[0]);
  void* out = second ? a.out[1] : a.out[0];
  const int lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const std::int64_t first = (tile * lanes + lane) * E;  // column

  previous_done();
  A sums[E] = {};
  if (first < a.cols) {  // the pitch has room for whole packets
    const int begin = static_cast<int>(threadIdx.x) >> a.lanes_log2;
    const A* from = parts + begin * a.pitch + first;
    const std::int64_t step = down * a.pitch;
    for (int row = begin; row < a.count; row += down * kUnroll) {
      Packet packets[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        packets[u] = zero_packet();
        if (row + u * down < a.count) packets[u] = *reinterpret_cast<const Packet*>(from);
        from += step;
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
        for (int i = 0; i < E; ++i) sums[i] += element<A>(packets[u], i);
      }
    }
  }

#pragma unroll
  for (int distance = 8; distance < kWave; distance *= 2) {  // lanes ≥ 8
    if (distance < lanes) continue;
#pragma unroll
    for (int i = 0; i < E; ++i) sums[i] += __shfl_xor(sums[i], distance, kWave);
  }
  // Lanes side by side of a wave, and waves side by side; the others share their columns.
  const int across = lanes < kWave ? lanes : kWave;
  const int wave = static_cast<int>(threadIdx.x) / kWave;
  const Lds<Packet> slots = lds_at<Packet>(0);
  const int in_wave = static_cast<int>(threadIdx.x) % kWave;
  if (in_wave < across) slots[wave * across + in_wave] = pack<A>(sums);
  __syncthreads();
  const int waves_down = kThreads / kWave * across >> a.lanes_log2;
  const Lds<const A> values = lds_cast<const A>(slots);
  for (int c = static_cast<int>(threadIdx.x); c < lanes * E; c += kThreads) {
    const std::int64_t column = tile * lanes * E + c;
    if (column >= a.cols) break;
    A sum = 0;
    for (int w = 0; w < waves_down; ++w) sum += values[w * lanes * E + c];
    if (a.wide) {
      static_cast<A*>(out)[column] = sum;
    } else {
      static_cast<T*>(out)[column] = from_accumulate<T>(sum);
    }
  }
}

// Lanes side by side: 8 (128 bytes, a cache line) spread narrow sums over many blocks; more where
// there are not so many partial rows that each lane down gets one, or where there are plenty of
// blocks though each lane adds four: 36864 columns and 17 rows took 8 µs with one row a lane (H200,
// caches cold), most of it for the instructions beside the loads. Depends on nothing but N and P:
// the order of the additions must not.
int lanes_log2_of(std::int64_t count, std::int64_t cols, int elements) {
  constexpr int kRowsOfLane = 4, kPlenty = 256;
  const auto down = [](int log2) { return std::int64_t{kThreads >> log2}; };
  const auto blocks = [&](int log2) { return 2 * cols / (elements << log2); };
  int log2 = 3;
  while (log2 < 8 && down(log2) > count) ++log2;
  while (log2 < 8 && kRowsOfLane * down(log2) > count && blocks(log2 + 1) >= kPlenty) ++log2;
  return log2;
}

}  // namespace

template <class T>
hipError_t reduce_parts(const BackwardArgs& args, const Launch& launch) {
  using A = accumulate_t<T>;
  const Problem& p = launch.problem;
  const char* workspace = static_cast<const char*>(args.workspace);
  const bool dweight = p.grads.dweight, dbias = p.grads.dbias;
  const int lanes_log2 = lanes_log2_of(launch.plan.partial_rows, p.cols, kElements<A>);
  const std::int64_t columns = std::int64_t{kElements<A>} << lanes_log2;
  const std::int64_t tiles = (p.cols + columns - 1) / columns;
  const ReduceArgs reduce = {
      .parts = {dweight ? workspace + launch.plan.dweight_offset : nullptr,
                dbias ? workspace + launch.plan.dbias_offset : nullptr},
      .out = {args.dweight, args.dbias},
      .count = static_cast<int>(launch.plan.partial_rows),
      .tiles = static_cast<unsigned>(tiles),
      .pitch = launch.plan.pitch,
      .cols = p.cols,
      .lanes_log2 = lanes_log2,
      .wide = p.weight != p.x,
  };
  const Grid grid = {.blocks = tiles * (dweight + dbias),
                     .threads = kThreads,
                     .lds_bytes = kThreads * sizeof(Packet),
                     .early = launch.device.bulk_copies,
                     .stream = static_cast<hipStream_t>(launch.stream)};
  return launch_kernel(reduce_parts_kernel<T>, grid, reduce);
}

template hipError_t reduce_parts<HIPNORM_ELEMENT>(const BackwardArgs&, const Launch&);

}  // namespace hipnorm::gpu
