// Writing a row: through the caches, or past them.
#pragma once

#include "kernels/cpu/packet.h"

namespace hipnorm::cpu::HIPNORM_ISA {

enum class Store { cached, streamed };

HIPNORM_INLINE bool is_aligned(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p) % kVecBytes == 0;
}

template <Store kStore, class T>
HIPNORM_INLINE void put(T* p, U32x bits) {
  if constexpr (kStore == Store::streamed) {
    stream(p, bits);
  } else {
    std::memcpy(p, &bits, sizeof bits);
  }
}

// Writes elements begin … end of a row to out[0 …]. packet.template operator()<kTail>(i) makes the
// packet at element i; fetch(i) is called for every kStep<T> elements.
template <Store kStore, class T, class MakePacket, class Fetch>
HIPNORM_INLINE void produce(T* out, std::int64_t begin, std::int64_t end, const MakePacket& packet,
                            const Fetch& fetch) {
  constexpr int kElements = Packet<T>::kElements, kPackets = kStep<T> / kElements;
  std::int64_t i = begin;
  for (; i + kStep<T> <= end; i += kStep<T>) {
    fetch(i);
    U32x bits[kPackets];
    for (int p = 0; p < kPackets; ++p) {
      bits[p] = packet.template operator()<false>(i + p * kElements).bits();
    }
    for (int p = 0; p < kPackets; ++p) put<kStore>(out + (i - begin) + p * kElements, bits[p]);
  }
  for (; i + kElements <= end; i += kElements) {
    put<kStore>(out + (i - begin), packet.template operator()<false>(i).bits());
  }
  if (i < end) store_head(out + (i - begin), packet.template operator()<true>(i), end - i);
}

// Gathers a row that does not start at a vector's alignment into whole aligned vectors, and streams
// those: a cache line written in part would be read first. Only the row's two ends go through the
// caches.
class Aligner {
 public:
  static constexpr int kBlockBytes = 4096;  // with the parameters it stays in a 32 KB L1

  explicit Aligner(void* row)
      : first_(static_cast<char*>(row)),
        line_(first_ - reinterpret_cast<std::uintptr_t>(row) % kVecBytes),
        held_(first_ - line_) {}

  // Where the next bytes, at most kBlockBytes, are to be written; then how many they were.
  void* next() { return buffer_ + held_; }
  void wrote(std::int64_t bytes) {
    held_ += bytes;
    std::int64_t i = 0;
    if (line_ < first_ && held_ >= kVecBytes) {  // the row's first, partial vector
      const std::int64_t skip = first_ - line_;
      std::memcpy(first_, buffer_ + skip, static_cast<std::size_t>(kVecBytes - skip));
      i = kVecBytes;
    }
    for (; i + kVecBytes <= held_; i += kVecBytes) {
      U32x v;
      std::memcpy(&v, buffer_ + i, sizeof v);
      stream(line_ + i, v);
    }
    line_ += i;
    held_ -= i;
    std::memmove(buffer_, buffer_ + i, static_cast<std::size_t>(held_));
  }
  // Writes what is left of the row's last vector.
  void finish() {
    const std::int64_t skip = line_ < first_ ? first_ - line_ : 0;
    std::memcpy(line_ + skip, buffer_ + skip, static_cast<std::size_t>(held_ - skip));
  }

 private:
  char* first_;
  char* line_;         // where buffer_[0] belongs, a multiple of kVecBytes
  std::int64_t held_;  // bytes in the buffer, those before the row's start included
  alignas(64) char buffer_[kBlockBytes + 2 * kVecBytes];
};

// Elements of a row before its first cache line that it has from the start, if it has that many.
template <class T>
HIPNORM_INLINE std::int64_t elements_to_line(const T* row, std::int64_t n) {
  const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(row) % 64);
  const std::int64_t head = (64 - past) % 64 / static_cast<std::int64_t>(sizeof(T));
  return head < n ? head : n;
}

// Calls body.template operator()<Store>(out, begin, end), which writes elements begin … end of a
// row to out[0 …]. kAnyColumn: a row that starts amid a cache line is written up to the line's end
// and from there on, aligned; otherwise `begin` is always a multiple of the packet's size. (A body
// that the compiler does not inline costs 30 ns a row.)
template <bool kAnyColumn, class T, class Body>
HIPNORM_INLINE void write_row(T* row, std::int64_t n, bool streamed, const Body& body) {
  if constexpr (kAnyColumn) {
    const std::int64_t head = !streamed ? n : is_aligned(row) ? 0 : elements_to_line(row, n);
    if (head > 0) body.template operator()<Store::cached>(row, std::int64_t{0}, head);
    if (head < n) body.template operator()<Store::streamed>(row + head, head, n);
  } else if (!streamed) {
    body.template operator()<Store::cached>(row, std::int64_t{0}, n);
  } else if (is_aligned(row)) {
    body.template operator()<Store::streamed>(row, std::int64_t{0}, n);
  } else {
    constexpr std::int64_t kBlock = Aligner::kBlockBytes / static_cast<std::int64_t>(sizeof(T));
    Aligner aligner(row);
    for (std::int64_t i = 0; i < n; i += kBlock) {
      const std::int64_t end = n - i < kBlock ? n : i + kBlock;
      body.template operator()<Store::cached>(static_cast<T*>(aligner.next()), i, end);
      aligner.wrote((end - i) * static_cast<std::int64_t>(sizeof(T)));
    }
    aligner.finish();
  }
}

}  // namespace hipnorm::cpu::HIPNORM_ISA
