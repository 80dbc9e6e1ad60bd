// The emulator's random numbers: xorshift64*, 2 ns a draw (Vigna 2016,
// https://arxiv.org/abs/1402.6246).
#pragma once

#include <cstdint>

namespace hipnorm::emulator {

class Random {
 public:
  explicit Random(std::uint64_t seed = 1) : state_(seed * 0x9e3779b97f4a7c15 + 0xd1b54a32d192ed03) {
    if (state_ == 0) state_ = 1;
    for (int i = 0; i < 4; ++i) next();  // near seeds start near each other
  }
  std::uint32_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<std::uint32_t>((state_ * 0x2545f4914f6cdd1d) >> 32);
  }
  // In [0, n).
  std::uint32_t below(std::uint32_t n) {
    return static_cast<std::uint32_t>((std::uint64_t{next()} * n) >> 32);
  }

 private:
  std::uint64_t state_;
};

}  // namespace hipnorm::emulator
