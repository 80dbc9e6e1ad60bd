// main() of operators_test. With HIPNORM_TEST_DEVICE=cuda but without a GPU nothing is run, and the
// exit code says so; HIPNORM_REQUIRE_GPU=1 makes that a failure.
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/operators/device.h"

namespace {

constexpr int kSkipped = 77;  // SKIP_RETURN_CODE in CMakeLists.txt

bool torch_has_gpu() {
  return c10::impl::hasDeviceGuardImpl(at::kCUDA) &&
         c10::impl::getDeviceGuardImpl(at::kCUDA)->deviceCount() > 0;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (hipnorm::testing::on_gpu() && !torch_has_gpu()) {
    const char* required = std::getenv("HIPNORM_REQUIRE_GPU");
    const bool fails = required != nullptr && std::string_view(required) == "1";
    std::fprintf(stderr, "%storch sees no GPU\n",
                 fails ? "HIPNORM_REQUIRE_GPU=1, but " : "skipped: ");
    return fails ? 1 : kSkipped;
  }
  return RUN_ALL_TESTS();
}
