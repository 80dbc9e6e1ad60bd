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

// The packets of kRows rows at one element.
template <class T, int kRows>
struct Made {
  Packet<T> row[kRows];
};

// Writes elements begin … end of kRows rows, of row r to outs[r][0 …].
// packets.template operator()<kTail>(i) makes the Made at element i; fetch(i) is called for every
// kStep<T> elements of all rows together. Through the caches: lines `out_ahead` elements farther
// are fetched, since a store that waits for its line holds up those behind it (backward on two
// cores of a Zen 5, caches cold: f32 20000x64 0.45 ns an element, 0.84 without; f16 20000x128 0.24
// and 0.36).
template <Store kStore, int kRows, class T, class MakePackets, class Fetch>
HIPNORM_INLINE void produce(T* const* outs, std::int64_t begin, std::int64_t end,
                            std::int64_t out_ahead, const MakePackets& packets,
                            const Fetch& fetch) {
  constexpr std::int64_t kBurst = kStep<T> / kRows;
  constexpr int kElements = Packet<T>::kElements, kPackets = kBurst / kElements;
  static_assert(kPackets > 0);
  T* out[kRows];
  for (int r = 0; r < kRows; ++r) out[r] = outs[r] - begin;
  std::int64_t i = begin;
  for (; i + kBurst <= end; i += kBurst) {
    fetch(i);
    if constexpr (kStore == Store::cached) {
      for (int r = 0; r < kRows; ++r) fetch_bytes(out[r] + i + out_ahead, 256 / kRows);
    }
    U32x bits[kRows][kPackets];
    unrolled<kPackets>([&](auto p) HIPNORM_INLINE_LAMBDA {
      const Made<T, kRows> made = packets.template operator()<false>(i + p * kElements);
      unrolled<kRows>([&](auto r) HIPNORM_INLINE_LAMBDA { bits[r][p] = made.row[r].bits(); });
    });
    unrolled<kRows>([&](auto r) HIPNORM_INLINE_LAMBDA {
      unrolled<kPackets>([&](auto p) HIPNORM_INLINE_LAMBDA {
        put<kStore>(out[r] + i + p * kElements, bits[r][p]);
      });
    });
  }
  for (; i + kElements <= end; i += kElements) {
    const Made<T, kRows> made = packets.template operator()<false>(i);
    unrolled<kRows>([&](auto r)
                        HIPNORM_INLINE_LAMBDA { put<kStore>(out[r] + i, made.row[r].bits()); });
  }
  if (i < end) {
    const Made<T, kRows> made = packets.template operator()<true>(i);
    for (int r = 0; r < kRows; ++r) store_head(out[r] + i, made.row[r], end - i);
  }
}

// Gathers a row that does not start at a vector's alignment into whole aligned vectors, and streams
// those: a cache line written in part would be read first. Only the row's two ends go through the
// caches.
class Aligner {
 public:
  static constexpr int kBlockBytes = 4096;  // with the parameters it stays in a 32 KB L1

  Aligner() {}  // start() comes next
  explicit Aligner(void* row) { start(row); }
  void start(void* row) {
    first_ = static_cast<char*>(row);
    line_ = first_ - reinterpret_cast<std::uintptr_t>(row) % kVecBytes;
    held_ = first_ - line_;
  }

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

// Writes elements 0 … n of kRows rows together, `block` elements at a time: calls
// body.template operator()<Store>(out, begin, end), which writes elements begin … end of row r to
// out[r][0 …], and after each block done(end). kAnyColumn: rows that start amid a cache line, all
// at the same place of one, are written up to the line's end and from there on, aligned; otherwise
// `begin` is always a multiple of the packet's size. (A body that the compiler does not inline
// costs 30 ns a row.)
template <bool kAnyColumn, int kRows, class T, class Body, class Done>
HIPNORM_INLINE void write_rows(T* const (&rows)[kRows], std::int64_t n, bool streamed,
                               std::int64_t block, const Body& body, const Done& done) {
  T* out[kRows];
  const auto at = [&](std::int64_t i) HIPNORM_INLINE_LAMBDA {
    for (int r = 0; r < kRows; ++r) out[r] = rows[r] + i;
  };
  if (!streamed) {
    for (std::int64_t i = 0; i < n; i += block) {
      const std::int64_t end = n - i < block ? n : i + block;
      at(i);
      body.template operator()<Store::cached>(out, i, end);
      done(end);
    }
    return;
  }
  const std::int64_t to_line = elements_to_line(rows[0], n);
  bool aligned = true, alike = kAnyColumn;
  for (int r = 0; r < kRows; ++r) {
    aligned = aligned && is_aligned(rows[r]);
    alike = alike && elements_to_line(rows[r], n) == to_line;
  }
  if (aligned || alike) {
    std::int64_t i = aligned ? 0 : to_line;
    if (i > 0) {
      at(0);
      body.template operator()<Store::cached>(out, std::int64_t{0}, i);
    }
    while (i < n) {
      const std::int64_t end = n - i < block ? n : i + block;
      at(i);
      body.template operator()<Store::streamed>(out, i, end);
      done(end);
      i = end;
    }
    return;
  }
  constexpr std::int64_t kMost = Aligner::kBlockBytes / static_cast<std::int64_t>(sizeof(T));
  const std::int64_t step = block < kMost ? block : kMost;
  Aligner aligners[kRows];
  for (int r = 0; r < kRows; ++r) aligners[r].start(rows[r]);
  for (std::int64_t i = 0; i < n; i += step) {
    const std::int64_t end = n - i < step ? n : i + step;
    for (int r = 0; r < kRows; ++r) out[r] = static_cast<T*>(aligners[r].next());
    body.template operator()<Store::cached>(out, i, end);
    for (Aligner& a : aligners) a.wrote((end - i) * static_cast<std::int64_t>(sizeof(T)));
    done(end);
  }
  for (Aligner& a : aligners) a.finish();
}

}  // namespace hipnorm::cpu::HIPNORM_ISA
