// Sums over the rows: the blocks that reduce columns, for backward_two_kernel, backward_sums_first
// (which writes dx in the same pass) and backward_roles.
//
// A thread owns the columns of one packet and walks down rows with dweight and dbias of these
// columns in registers; the threads of a block that stand below each other (ColumnShape) are added
// in LDS at the end, in a fixed order. What lies beside the row in its first and last packet is
// summed too, in sums that nobody writes: no masks in the loop.
//
// Rows may start at any element. Columns of a thread are fixed, so packets of rows that are not
// aligned to them come by Fetch<false>.
#pragma once

#include <cmath>

#include "kernels/gpu/columns_layout.h"
#include "kernels/gpu/statistics.h"
#include "kernels/gpu/unaligned.h"
#include "kernels/launch.h"

namespace hipnorm::gpu {

// (c1, c2) of a row.
template <class A>
struct alignas(2 * sizeof(A)) RowSums {
  A c1;
  A c2;
};

struct ColumnArgs {
  Rows x;
  Rows dy;
  const void* mean = nullptr;  // [rows] of the accumulate type, as rstd
  const void* rstd = nullptr;
  std::int64_t first_row = 0;  // the rows of this launch
  std::int64_t last_row = 0;
  std::int64_t cols = 0;
  std::int64_t strips = 0;
  int packets = 1;  // ColumnShape
  int parts = 1;
  // [parts, pitch] of the accumulate type, or the gradients themselves; null: not asked for.
  void* dweight = nullptr;
  void* dbias = nullptr;
  std::int64_t pitch = 0;
  bool partial = false;
  bool add = false;   // to the partial sums of the rows before first_row
  bool wide = false;  // the gradients are of the accumulate type
  // backward_sums_first only.
  const void* sums = nullptr;  // [rows] RowSums
  Parameter weight;
  char* dx = nullptr;  // null: not asked for
  std::int64_t dx_stride = 0;
};

// Host: for all rows in `parts` parts, which write partial sums or, one part, the gradients; what
// only backward_sums_first has is left out.
inline ColumnArgs column_args(const BackwardArgs& args, const Launch& launch, int parts,
                              bool partial) {
  const Problem& problem = launch.problem;
  const Config& config = launch.config;
  const int size = size_of(problem.x);
  const ColumnShape shape = column_shape(config.variant, problem, config.threads);
  ColumnArgs result;
  result.x = make_rows(args.x, args.x_stride, problem.rows, problem.cols, size);
  result.dy = make_rows(args.dy, args.dy_stride, problem.rows, problem.cols, size);
  result.mean = args.mean;
  result.rstd = args.rstd;
  result.last_row = problem.rows;
  result.cols = problem.cols;
  result.strips = shape.strips;
  result.packets = shape.packets;
  result.parts = parts;
  result.wide = problem.weight != problem.x;
  result.partial = partial;
  if (result.partial) {
    auto* workspace = static_cast<char*>(args.workspace);
    if (problem.grads.dweight) result.dweight = workspace + launch.plan.dweight_offset;
    if (problem.grads.dbias) result.dbias = workspace + launch.plan.dbias_offset;
    result.pitch = launch.plan.pitch;
  } else {
    result.dweight = args.dweight;
    result.dbias = args.dbias;
  }
  return result;
}

// mean and rstd of one row, and whether x̂ may be formed: where it may not, x̂ = 0 and dx = 0.
template <class A>
struct SavedRow {
  A mean = 0;
  A rstd = 0;
  bool ok = true;
  __device__ __forceinline__ A normalized(A x) const { return (x - mean) * rstd; }
};
// Zeroes those of a row without x̂, and its packet, so that normalized() is 0.
template <class A>
__device__ __forceinline__ void settle(SavedRow<A>& saved, Packet& x) {
  saved.ok = usable(saved.rstd);
  if (!saved.ok) {
    saved.mean = saved.rstd = 0;
    x = zero_packet();
  }
}

template <class T>
struct ColumnSums {
  accumulate_t<T> dweight[kElements<T>] = {};
  accumulate_t<T> dbias[kElements<T>] = {};
};

// The rows of one thread.
struct RowWalk {
  std::int64_t row = 0;
  std::int64_t step = 0;
  std::int64_t count = 0;
};

// Adds one row's packets to the sums; kDx: writes its dx too.
template <class T, bool kDx>
__device__ __forceinline__ void add_row(const ColumnArgs& args, Chunk c, std::int64_t row, Packet x,
                                        const Packet& dy, SavedRow<accumulate_t<T>> saved,
                                        RowSums<accumulate_t<T>> row_sums,
                                        const accumulate_t<T> (&weight)[kElements<T>],
                                        ColumnSums<T>& sums) {
  using A = accumulate_t<T>;
  settle(saved, x);
  A out[kElements<T>];
#pragma unroll
  for (int i = 0; i < kElements<T>; ++i) {
    const A d = element<T>(dy, i);
    const A normalized = saved.normalized(element<T>(x, i));
    sums.dweight[i] = fused(d, normalized, sums.dweight[i]);
    sums.dbias[i] += d;
    if constexpr (kDx) {
      out[i] = saved.rstd * fused(-normalized, row_sums.c2, product(d, weight[i]) - row_sums.c1);
    }
  }
  if constexpr (kDx) {
    if (args.dx == nullptr) return;
    const Packet packet = saved.ok ? pack<T>(out) : zero_packet();
    store_chunk<T>(args.dx + row * args.dx_stride, c, packet);
  }
}

// Walks down the rows, kUnroll at a time with all their loads in flight.
template <class T, bool kDx, bool kAligned, int kUnroll>
__device__ __forceinline__ void sum_rows(const ColumnArgs& kernel_args, Chunk c,
                                         const RowWalk& walk,
                                         const accumulate_t<T> (&weight)[kElements<T>],
                                         ColumnSums<T>& sums) {
  using A = accumulate_t<T>;
  const std::int64_t at = c.first * static_cast<std::int64_t>(sizeof(T));
  const char* x = kernel_args.x.row(walk.row) + at;
  const char* dy = kernel_args.dy.row(walk.row) + at;
  std::int64_t row = walk.row;
  for (std::int64_t left = walk.count; left > 0; left -= kUnroll) {
    const ColumnArgs& args = reread(kernel_args);
    const auto* means = static_cast<const A*>(args.mean);
    const auto* rstds = static_cast<const A*>(args.rstd);
    const auto* pairs = static_cast<const RowSums<A>*>(args.sums);
    const bool needs_x = args.dweight != nullptr || (kDx && args.dx != nullptr);
    const bool needs_sums = kDx && args.dx != nullptr;
    const std::int64_t x_step = walk.step * args.x.stride, dy_step = walk.step * args.dy.stride;
    const int rows = left < kUnroll ? static_cast<int>(left) : kUnroll;
    // The first and last packets of a tensor may reach beyond it.
    if ((!needs_x || Fetch<kAligned>::readable(args.x, x, x + (rows - 1) * x_step)) &&
        Fetch<kAligned>::readable(args.dy, dy, dy + (rows - 1) * dy_step)) {
      Fetch<kAligned> x_packet[kUnroll], dy_packet[kUnroll];
      SavedRow<A> saved[kUnroll];
      RowSums<A> row_sums[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        x_packet[u].clear();
        dy_packet[u].clear();
        row_sums[u] = {};
        if (u >= rows) continue;
        dy_packet[u].request(dy + u * dy_step);
        if (needs_x) {
          x_packet[u].request(x + u * x_step);
          saved[u].mean = means[row + u * walk.step];
          saved[u].rstd = rstds[row + u * walk.step];
        }
        if (needs_sums) row_sums[u] = pairs[row + u * walk.step];
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (u < rows) {
          add_row<T, kDx>(args, c, row + u * walk.step, x_packet[u].get(), dy_packet[u].get(),
                          saved[u], row_sums[u], weight, sums);
        }
      }
    } else {
      for (int u = 0; u < rows; ++u) {
        const std::int64_t r = row + u * walk.step;
        const Packet dy_elements = load_elements<T>(dy + u * dy_step, c);
        Packet x_elements = zero_packet();
        SavedRow<A> saved;
        if (needs_x) {
          x_elements = load_elements<T>(x + u * x_step, c);
          saved.mean = means[r];
          saved.rstd = rstds[r];
        }
        add_row<T, kDx>(args, c, r, x_elements, dy_elements, saved,
                        needs_sums ? pairs[r] : RowSums<A>{}, weight, sums);
      }
    }
    row += kUnroll * walk.step;
    x += kUnroll * x_step;
    dy += kUnroll * dy_step;
  }
}

// Adds the sums of the block's threads that own the same columns and writes them: column i of the
// strip by write(i, sum), once each. Two levels, so that 64 lanes of depth are 8 + 8 additions.
template <class T, class Write>
__device__ __forceinline__ void add_lanes(const accumulate_t<T> (&mine)[kElements<T>], int packets,
                                          Lds<accumulate_t<T>> lds, Write write) {
  using A = accumulate_t<T>;
  constexpr int E = kElements<T>, kEach = kElements<A>;
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int columns = packets * E, depth = threads / packets;
  __syncthreads();  // whoever read the LDS before has done so
#pragma unroll
  for (int k = 0; k < E / kEach; ++k) {
    A values[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) values[i] = mine[k * kEach + i];
    lds_cast<Packet>(lds)[thread * (E / kEach) + k] = pack<A>(values);
  }
  __syncthreads();
  const int groups = threads / columns;
  if (groups <= 1) {
    for (int i = thread; i < columns; i += threads) {
      A sum = lds[i];
      for (int d = 1; d < depth; ++d) sum += lds[d * columns + i];
      write(i, sum);
    }
    return;
  }
  const int i = thread % columns, group = thread / columns;
  A sum = 0;
  if (group < groups) {
    for (int d = group; d < depth; d += groups) sum += lds[d * columns + i];
  }
  __syncthreads();
  if (group < groups) lds[group * columns + i] = sum;
  __syncthreads();
  if (group == 0) {
    for (int g = 1; g < groups; ++g) sum += lds[g * columns + i];
    write(i, sum);
  }
}

// One block: strip `strip` of part `part`. `lds` has column_lds_bytes().
template <class T, bool kDx>
__device__ __forceinline__ void reduce_columns(const ColumnArgs& args, std::int64_t part,
                                               std::int64_t strip, Lds<accumulate_t<T>> lds) {
  using A = accumulate_t<T>;
  constexpr int E = kElements<T>;
  const int thread = static_cast<int>(threadIdx.x);
  const int depth = static_cast<int>(blockDim.x) / args.packets;
  const int lane = thread / args.packets;
  const std::int64_t part_row = args.first_row + part;
  const int shift = kDx && args.dx != nullptr && part_row < args.last_row
                        ? shift_of<T>(args.dx + part_row * args.dx_stride)
                        : 0;
  const Chunk c = chunk<T>(strip * args.packets + thread % args.packets, shift, args.cols);

  RowWalk walk{part_row + static_cast<std::int64_t>(args.parts) * lane,
               static_cast<std::int64_t>(args.parts) * depth, 0};
  if (lane < depth && !c.empty() && walk.row < args.last_row) {
    walk.count = (args.last_row - walk.row + walk.step - 1) / walk.step;
  }
  ColumnSums<T> sums;
  if (walk.count > 0) {
    A weight[E] = {};
    if constexpr (kDx) load_parameter<T>(args.weight, c, A{1}, weight);
    const bool one_row = part_row + args.parts >= args.last_row;
    const auto aligned = [&](const Rows& rows) {
      return shift_of<T>(rows.row(part_row)) == shift &&
             (one_row || args.parts * rows.stride % 16 == 0);
    };
    if (aligned(args.x) && aligned(args.dy)) {
      sum_rows<T, kDx, true, 4>(args, c, walk, weight, sums);
    } else {
      sum_rows<T, kDx, false, 2>(args, c, walk, weight, sums);
    }
  }

  const std::int64_t first = strip * args.packets * E - shift;
  const auto write_to = [&](void* target) {
    return [&args, first, part, target](int i, A sum) {
      const std::int64_t column = first + i;
      if (column < 0 || column >= args.cols) return;
      if (args.partial) {
        A* at = static_cast<A*>(target) + part * args.pitch + column;
        *at = args.add ? *at + sum : sum;
      } else if (args.wide) {
        static_cast<A*>(target)[column] = sum;
      } else {
        static_cast<T*>(target)[column] = from_accumulate<T>(sum);
      }
    };
  };
  if (args.dbias != nullptr) add_lanes<T>(sums.dbias, args.packets, lds, write_to(args.dbias));
  if (args.dweight != nullptr) {
    add_lanes<T>(sums.dweight, args.packets, lds, write_to(args.dweight));
  }
}

}  // namespace hipnorm::gpu
