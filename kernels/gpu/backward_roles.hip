// LayerNorm backward in one launch, for so few rows that launches are what costs: the first blocks
// reduce columns, a strip of all rows each, and write dweight and dbias; the others give dx row by
// row. x and dy are read by both, mostly from the cache. Any N.
#include "kernels/gpu/launchers.h"
#include "kernels/gpu/row_sums.h"

namespace hipnorm::gpu {
namespace {

struct RoleArgs {
  ColumnArgs columns;  // weight, dx too
  std::int64_t column_blocks = 0;
  int lanes = 1;  // that share a row
};

// Packets of a row that a lane keeps between sums and dx; what is beyond them is read again.
constexpr int kKept = 2;

// The packet at chunk `c` of a row of any alignment, zero outside the row.
template <class T>
__device__ __forceinline__ Packet load_packet(const Rows& rows, const char* row, Chunk c,
                                              bool aligned) {
  const char* address = row + c.first * static_cast<std::int64_t>(sizeof(T));
  if (c.empty()) return zero_packet();
  if (aligned && Fetch<true>::readable(rows, address, address)) {
    Fetch<true> fetch;
    fetch.request(address);
    return fetch.get();
  }
  if (!aligned && Fetch<false>::readable(rows, address, address)) {
    Fetch<false> fetch;
    fetch.request(address);
    return fetch.get();
  }
  return load_elements<T>(address, c);
}

// dx of one packet's columns.
template <class T>
__device__ __forceinline__ void store_dx(const ColumnArgs& args, std::int64_t row, Chunk c,
                                         Packet x, const Packet& dy,
                                         SavedRow<accumulate_t<T>> saved,
                                         RowSums<accumulate_t<T>> sums) {
  using A = accumulate_t<T>;
  A weight[kElements<T>], out[kElements<T>];
  load_parameter<T>(args.weight, c, A{1}, weight);
  settle(saved, x);
#pragma unroll
  for (int i = 0; i < kElements<T>; ++i) {
    const A normalized = saved.normalized(element<T>(x, i));
    out[i] =
        saved.rstd * fused(-normalized, sums.c2, product(element<T>(dy, i), weight[i]) - sums.c1);
  }
  store_chunk<T>(args.dx + row * args.dx_stride, c, saved.ok ? pack<T>(out) : zero_packet());
}

// The rows of one block, a row for each group of `lanes` threads.
template <class T>
__device__ __forceinline__ void rows_of_block(const ColumnArgs& args, std::int64_t block, int lanes,
                                              Lds<accumulate_t<T>> slots) {
  using A = accumulate_t<T>;
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t row =
      block * (static_cast<int>(blockDim.x) / lanes) + static_cast<std::int64_t>(thread / lanes);
  const bool here = row < args.last_row;
  const char *x_row = args.x.base, *dy_row = args.dy.base;
  std::int64_t chunks = 0;
  int shift = 0;
  SavedRow<A> saved;
  if (here) {
    x_row = args.x.row(row);
    dy_row = args.dy.row(row);
    shift = shift_of<T>(args.dx + row * args.dx_stride);
    chunks = chunks_of<T>(args.cols, shift);
    saved = load_saved<A>(args, row);
  }
  const bool x_aligned = aligned_at<T>(x_row, shift), dy_aligned = aligned_at<T>(dy_row, shift);
  const auto chunk_at = [&](std::int64_t v) { return chunk<T>(v, shift, args.cols); };
  const auto add = [&](Chunk c, Packet x, Packet dy, RowSums<A>& sums) {
    A weight[kElements<T>];
    load_parameter<T>(args.weight, c, A{1}, weight);
    add_packet<T>(x, dy, c, saved, weight, sums);
  };

  const std::int64_t lane = thread % lanes;
  Packet x[kKept], dy[kKept];
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    x[k] = dy[k] = zero_packet();
    const std::int64_t v = lane + k * lanes;
    if (v >= chunks) continue;
    x[k] = load_packet<T>(args.x, x_row, chunk_at(v), x_aligned);
    dy[k] = load_packet<T>(args.dy, dy_row, chunk_at(v), dy_aligned);
  }
  RowSums<A> sums{};
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const std::int64_t v = lane + k * lanes;
    if (v < chunks) add(chunk_at(v), x[k], dy[k], sums);
  }
  for (std::int64_t v = lane + kKept * lanes; v < chunks; v += lanes) {
    const Chunk c = chunk_at(v);
    add(c, load_packet<T>(args.x, x_row, c, x_aligned),
        load_packet<T>(args.dy, dy_row, c, dy_aligned), sums);
  }
  add_row_lanes(sums, lanes, slots, 0);
  sums.c1 /= static_cast<A>(args.cols);
  sums.c2 /= static_cast<A>(args.cols);
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const std::int64_t v = lane + k * lanes;
    if (v < chunks) store_dx<T>(args, row, chunk_at(v), x[k], dy[k], saved, sums);
  }
  for (std::int64_t v = lane + kKept * lanes; v < chunks; v += lanes) {
    const Chunk c = chunk_at(v);
    store_dx<T>(args, row, c, load_packet<T>(args.x, x_row, c, x_aligned),
                load_packet<T>(args.dy, dy_row, c, dy_aligned), saved, sums);
  }
}

template <class T>
__global__ void __launch_bounds__(kMaxColumnThreads) roles(RoleArgs args) {
  const auto block = static_cast<std::int64_t>(blockIdx.x);
  const Lds<accumulate_t<T>> lds = lds_at<accumulate_t<T>>(0);
  if (block < args.column_blocks) {
    reduce_columns<T, false>(args.columns, 0, block, lds);
  } else {
    rows_of_block<T>(args.columns, block - args.column_blocks, args.lanes, lds);
  }
}

}  // namespace

template <class T>
hipError_t backward_roles(const BackwardArgs& args, const Launch& launch) {
  const Problem& problem = launch.problem;
  const int threads = launch.config.threads;
  RoleArgs roles_args{column_args(args, launch, 1, false), 0,
                      row_lanes(problem, threads, launch.device.wave_size)};
  ColumnArgs& columns = roles_args.columns;
  columns.weight = {args.weight, columns.wide};
  columns.dx = static_cast<char*>(args.dx);
  columns.dx_stride = problem.cols * static_cast<std::int64_t>(sizeof(T));
  if (problem.grads.columns()) roles_args.column_blocks = columns.strips;
  const Grid grid{.blocks = role_blocks(problem, threads, launch.device.wave_size),
                  .threads = threads,
                  .lds_bytes = static_cast<std::size_t>(launch.plan.lds_bytes),
                  .stream = static_cast<hipStream_t>(launch.stream)};
  return launch_kernel(roles<T>, grid, roles_args);
}

template hipError_t backward_roles<HIPNORM_ELEMENT>(const BackwardArgs&, const Launch&);

}  // namespace hipnorm::gpu
