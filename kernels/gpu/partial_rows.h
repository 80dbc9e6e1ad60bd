// From a group's column sums in registers to its block's row of the partial buffers.
#pragma once

#include "kernels/gpu/group.h"
#include "kernels/gpu/row.h"

namespace hipnorm::gpu {

// Writes a group's sums as the partial row at `offset` of `parts`; nothing where that is null.
template <class T, int V, class Group>
__device__ __forceinline__ void write_partial_row(accumulate_t<T>* parts, std::int64_t offset,
                                                  const accumulate_t<T> (&sums)[V][kElements<T>],
                                                  const RowShape<T>& shape, const Group& group) {
  using A = accumulate_t<T>;
  constexpr int E = kElements<T>, kEach = kElements<A>;
  if (parts == nullptr) return;
  A* row = parts + offset - shape.shift;  // of chunk 0
#pragma unroll
  for (int v = 0; v < V; ++v) {
    const int k = v * group.lanes + group.lane;
    if (shape.shift == 0 && shape.full.has(k)) {  // the partial row is aligned
#pragma unroll
      for (int i = 0; i < E; i += kEach) {
        A part[kEach];
#pragma unroll
        for (int j = 0; j < kEach; ++j) part[j] = sums[v][i + j];
        *reinterpret_cast<Packet*>(row + k * E + i) = pack<A>(part);
      }
    } else {
#pragma unroll
      for (int i = 0; i < E; ++i) {
        if (shape.holds(k, i)) row[k * E + i] = sums[v][i];
      }
    }
  }
}

// The same for a block of several groups, whose sums are added in the groups' order by way of LDS:
// backward_wave_lds_bytes from its start. shift_of(g): that of group g's rows.
template <class T, int V, class Shift>
__device__ __forceinline__ void add_groups(accumulate_t<T>* parts, std::int64_t offset,
                                           const accumulate_t<T> (&sums)[V][kElements<T>],
                                           const Shift& shift_of, int cols,
                                           const WaveGroup& group) {
  using A = accumulate_t<T>;
  constexpr int E = kElements<T>, kEach = kElements<A>;
  if (parts == nullptr) return;
  const int group_elements = group.lanes * V * E;
  const Lds<A> all = lds_at<A>(0), own = all + group.index * group_elements;
  __syncthreads();  // the other gradient's sums have been read
#pragma unroll
  for (int v = 0; v < V; ++v) {
#pragma unroll
    for (int i = 0; i < E; i += kEach) {
      A part[kEach];
#pragma unroll
      for (int j = 0; j < kEach; ++j) part[j] = sums[v][i + j];
      lds_cast<Packet>(own)[((v * group.lanes + group.lane) * E + i) / kEach] = pack<A>(part);
    }
  }
  __syncthreads();
#pragma unroll 1
  for (int c = static_cast<int>(threadIdx.x); c < cols; c += static_cast<int>(blockDim.x)) {
    A sum = 0;
    for (int g = 0; g < group.count; ++g) sum += all[g * group_elements + c + shift_of(g)];
    parts[offset + c] = sum;
  }
}

}  // namespace hipnorm::gpu
