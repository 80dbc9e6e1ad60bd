// LayerNorm backward that keeps nothing but sums on the chip: c1 and c2 of every row first, then
// column strips that write dx and sum dweight and dbias in the same pass. x and dy are read twice:
// 5·M·N·e + 16·parts·N bytes. Any N, any M: the variant that always runs.
#include <limits>

#include "kernels/gpu/launchers.h"
#include "kernels/gpu/row_sums.h"

namespace hipnorm::gpu {
namespace {

struct RowSumsArgs {
  ColumnArgs columns;
  int lanes = 1;  // that share a row
};

// Rows that a group of lanes sums together: weights are loaded once for all, and twice the loads
// are in flight.
constexpr int kRows = 2;

template <class T, bool kAligned>
__device__ __forceinline__ void sum_row_pair(const ColumnArgs& args, Chunk c, const char* const* x,
                                             const char* const* dy, const bool (&here)[kRows],
                                             const SavedRow<accumulate_t<T>> (&saved)[kRows],
                                             RowSums<accumulate_t<T>> (&sums)[kRows]) {
  const std::int64_t at = c.first * static_cast<std::int64_t>(sizeof(T));
  Fetch<kAligned> x_packet[kRows], dy_packet[kRows];
  bool x_readable[kRows], dy_readable[kRows];
#pragma unroll
  for (int u = 0; u < kRows; ++u) {
    x_packet[u].clear();
    dy_packet[u].clear();
    x_readable[u] = Fetch<kAligned>::readable(args.x, x[u] + at, x[u] + at);
    dy_readable[u] = Fetch<kAligned>::readable(args.dy, dy[u] + at, dy[u] + at);
    if (here[u] && x_readable[u]) x_packet[u].request(x[u] + at);
    if (here[u] && dy_readable[u]) dy_packet[u].request(dy[u] + at);
  }
  accumulate_t<T> weight[kElements<T>];
  load_parameter<T>(args.weight, c, 1, weight);
#pragma unroll
  for (int u = 0; u < kRows; ++u) {
    if (!here[u]) continue;
    const Packet xs = x_readable[u] ? x_packet[u].get() : load_elements<T>(x[u] + at, c);
    const Packet dys = dy_readable[u] ? dy_packet[u].get() : load_elements<T>(dy[u] + at, c);
    add_packet<T>(xs, dys, c, saved[u], weight, sums[u]);
  }
}

// c1 and c2 of kRows rows a group of args.lanes lanes.
template <class T>
__global__ void __launch_bounds__(kMaxColumnThreads) row_sums(RowSumsArgs row_args) {
  using A = accumulate_t<T>;
  const ColumnArgs& args = row_args.columns;
  const int thread = static_cast<int>(threadIdx.x), lanes = row_args.lanes;
  const int groups = static_cast<int>(blockDim.x) / lanes;
  const int lane = thread % lanes;
  const std::int64_t rows_each = static_cast<std::int64_t>(groups) * kRows;
  const std::int64_t first =
      args.first_row + static_cast<std::int64_t>(blockIdx.x) * rows_each + thread / lanes;

  // Chunks from column 0 on, like those of the weight.
  const char *x[kRows], *dy[kRows];
  bool here[kRows], aligned = true;
  SavedRow<A> saved[kRows];
  RowSums<A> sums[kRows];
#pragma unroll
  for (int u = 0; u < kRows; ++u) {
    const std::int64_t row = first + u * groups;
    here[u] = row < args.last_row;
    x[u] = args.x.row(here[u] ? row : args.first_row);
    dy[u] = args.dy.row(here[u] ? row : args.first_row);
    if (here[u]) {
      saved[u] = load_saved<A>(args, row);
      aligned = aligned && shift_of<T>(x[u]) == 0 && shift_of<T>(dy[u]) == 0;
    }
    sums[u] = {};
  }
  const std::int64_t chunks = chunks_of<T>(args.cols, 0);
  if (aligned) {
    for (std::int64_t v = lane; v < chunks; v += lanes) {
      sum_row_pair<T, true>(args, chunk<T>(v, 0, args.cols), x, dy, here, saved, sums);
    }
  } else {
    for (std::int64_t v = lane; v < chunks; v += lanes) {
      sum_row_pair<T, false>(args, chunk<T>(v, 0, args.cols), x, dy, here, saved, sums);
    }
  }
#pragma unroll
  for (int u = 0; u < kRows; ++u) add_row_lanes(sums[u], lanes, lds_at<A>(0), u % 2);
  const A cols = static_cast<A>(args.cols);
  auto* pairs = const_cast<RowSums<A>*>(static_cast<const RowSums<A>*>(args.sums));
#pragma unroll
  for (int u = 0; u < kRows; ++u) {
    if (lane == 0 && here[u]) pairs[first + u * groups] = {sums[u].c1 / cols, sums[u].c2 / cols};
  }
}

template <class T>
__global__ void __launch_bounds__(kMaxColumnThreads) strips(ColumnArgs args) {
  const auto block = static_cast<std::int64_t>(blockIdx.x);
  reduce_columns<T, true>(args, block / args.strips, block % args.strips,
                          lds_at<accumulate_t<T>>(0));
}

}  // namespace

template <class T>
hipError_t backward_sums_first(const BackwardArgs& args, const Launch& launch) {
  const Problem& problem = launch.problem;
  const int threads = launch.config.threads;
  const std::int64_t panel = panel_rows(problem, launch.device);
  const int parts = launch.config.parts;
  ColumnArgs columns = column_args(args, launch, parts, parts > 1 || panel < problem.rows);
  columns.weight = {args.weight, columns.wide};
  columns.sums = static_cast<char*>(args.workspace) + launch.plan.sums_offset;
  columns.dx = static_cast<char*>(args.dx);
  columns.dx_stride = problem.cols * static_cast<std::int64_t>(sizeof(T));

  RowSumsArgs rows{columns, row_lanes(problem, threads, launch.device.wave_size)};
  for (std::int64_t first = 0; first < problem.rows; first += panel) {
    columns.first_row = first;
    columns.last_row = std::min(problem.rows, first + panel);
    columns.add = first > 0;
    if (problem.grads.dx) {
      rows.columns = columns;
      const std::int64_t rows_each = std::int64_t{threads} / rows.lanes * kRows;
      const Grid grid{.blocks = (columns.last_row - columns.first_row + rows_each - 1) / rows_each,
                      .threads = threads,
                      .lds_bytes = static_cast<std::size_t>(row_lds_bytes(problem)),
                      .stream = static_cast<hipStream_t>(launch.stream)};
      if (const hipError_t error = launch_kernel(row_sums<T>, grid, rows); error != hipSuccess) {
        return error;
      }
    }
    const Grid grid{.blocks = columns.strips * columns.parts,
                    .threads = threads,
                    .lds_bytes = static_cast<std::size_t>(column_lds_bytes(problem, threads)),
                    .stream = static_cast<hipStream_t>(launch.stream)};
    if (const hipError_t error = launch_kernel(strips<T>, grid, columns); error != hipSuccess) {
      return error;
    }
  }
  return columns.partial && problem.grads.columns() ? reduce_parts<T>(args, launch) : hipSuccess;
}

template hipError_t backward_sums_first<HIPNORM_ELEMENT>(const BackwardArgs&, const Launch&);

}  // namespace hipnorm::gpu
