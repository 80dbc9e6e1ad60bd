// Copies from memory to LDS by the copy engine, barriers in LDS that count their bytes, and
// clusters of blocks that write into each other's LDS (sm_90; PTX ISA, "Asynchronous Barrier",
// "cp.async.bulk", "st.async", "mapa"). The emulator has its own functions of these names.
#pragma once

#include "kernels/gpu/platform.h"

// Whether the platform may have all of this: what a file of kernels is compiled by.
#if defined(HIPNORM_EMULATED) || defined(__CUDACC__)
#define HIPNORM_BULK_COPIES 1
#else
#define HIPNORM_BULK_COPIES 0
#endif

namespace hipnorm::gpu {

// Whether the target being compiled has it. A kernel's body is instantiated only if so.
#if defined(HIPNORM_EMULATED)
inline constexpr bool kBulkCopies = true;
#elif defined(__CUDA_ARCH__)
inline constexpr bool kBulkCopies = __CUDA_ARCH__ >= 900;
#else
inline constexpr bool kBulkCopies = false;
#endif

#if !defined(HIPNORM_EMULATED) && defined(__CUDACC__)

// A phase completes when all arrivals and all expected bytes have come; then the next one begins.
// Bytes may come before they are expected, as long as an arrival of the phase is missing.
struct alignas(8) AsyncBarrier {
  std::uint64_t state;
};

template <class T>
__device__ __forceinline__ std::uint32_t lds_address(T* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// By one thread.
__device__ __forceinline__ void barrier_init(Lds<AsyncBarrier> b, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(lds_address(b)), "r"(arrivals)
               : "memory");
}
// By that thread, after its inits: makes them visible to the copy engine and, once they have passed
// a block (cluster) barrier, to the other threads of the block (cluster).
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive(Lds<AsyncBarrier> b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(lds_address(b)) : "memory");
}
// One arrival, and `bytes` more for this phase to wait for.
__device__ __forceinline__ void barrier_arrive_expect(Lds<AsyncBarrier> b, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(lds_address(b)),
               "r"(bytes)
               : "memory");
}
// Returns when the phase of that parity has completed: phases have parity 0, 1, 0 … A thread must
// not fall two phases behind.
__device__ __forceinline__ void barrier_wait(Lds<AsyncBarrier> b, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "wait_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra wait_%=;\n"
      "}" ::"r"(lds_address(b)),
      "r"(parity)
      : "memory");
}

// Starts a copy; dst, src and bytes are multiples of 16. Completes `bytes` on b.
__device__ __forceinline__ void copy_to_lds(Lds<unsigned char> dst, const void* src, unsigned bytes,
                                            Lds<AsyncBarrier> b) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(lds_address(dst)),
      "l"(__cvta_generic_to_global(src)), "r"(bytes), "r"(lds_address(b))
      : "memory");
}
// Orders this thread's ordinary LDS accesses before its later copies.
__device__ __forceinline__ void fence_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ int cluster_rank() {
  std::uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
// A barrier of all threads of the cluster, in two halves. On the device it publishes only what
// barrier_init_fence() does: a releasing arrive would first wait for all of the thread's loads
// (4 µs at the start of a kernel that has just asked for its first rows).
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// An address in the LDS of a block of the cluster.
template <class T>
struct Remote {
  std::uint32_t address;
  __device__ __forceinline__ Remote operator+(int i) const {
    return {address + static_cast<std::uint32_t>(i) * static_cast<std::uint32_t>(sizeof(T))};
  }
};
// The place in block `rank` that corresponds to `local` here.
template <class T>
__device__ __forceinline__ Remote<T> remote(Lds<T> local, int rank) {
  Remote<T> result;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(result.address)
      : "r"(lds_address(local)), "r"(rank));
  return result;
}

struct alignas(8) Pair {
  float a, b;
};
// Stores `value` there, some time later, and completes its bytes on b, in the same block.
__device__ __forceinline__ void post(Remote<Pair> slot, Pair value, Remote<AsyncBarrier> b) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
          slot.address),
      "f"(value.a), "f"(value.b), "r"(b.address)
      : "memory");
}
__device__ __forceinline__ void post(Remote<float> slot, float value, Remote<AsyncBarrier> b) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(
                   slot.address),
               "f"(value), "r"(b.address)
               : "memory");
}

#endif

}  // namespace hipnorm::gpu
