// Is a number what the truth allows (tests/reference/bounds.h)? One answer for every device.
#pragma once

#if defined(__CUDACC__) || defined(__HIP__) || defined(__HIPCC__)
#define HIPNORM_TUNE_EVERYWHERE __host__ __device__
#else
#define HIPNORM_TUNE_EVERYWHERE
#endif

namespace hipnorm::tune {

// What misfit() says of a wrong number; of a right one it says at most 1.
constexpr float kWrong = 2;

// How far `got` lies from the middle of what is allowed: 0 there, 1 at low and high. 0 also where
// anything not finite is right, or no width is known.
HIPNORM_TUNE_EVERYWHERE inline float misfit(float got, float low, float high, bool must_be_nan) {
  const bool finite = got - got == 0;
  if (low != low) return (must_be_nan ? got != got : !finite) ? 0 : kWrong;
  if (low > high) return finite ? kWrong : 0;
  if (!(low <= got && got <= high)) return kWrong;
  const float half = high / 2 - low / 2;
  if (!(half > 0) || !(half - half == 0)) return 0;
  const float distance = (got - low) - half;
  const float ratio = (distance < 0 ? -distance : distance) / half;
  return ratio < 1 ? ratio : 1;
}

}  // namespace hipnorm::tune
