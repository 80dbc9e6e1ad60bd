// main() of kernels_gpu_test: without a GPU that the kernels can run on nothing is run, and the
// exit code says so; HIPNORM_REQUIRE_GPU=1 makes that a failure.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "tests/kernels/backend.h"

namespace {

constexpr int kSkipped = 77;  // SKIP_RETURN_CODE in CMakeLists.txt

}  // namespace

int main(int argc, char** argv) {
  try {
    static_cast<void>(hipnorm::testing::device());
  } catch (const std::exception& error) {
    const char* required = std::getenv("HIPNORM_REQUIRE_GPU");
    const bool fails = required != nullptr && std::string_view(required) == "1";
    std::fprintf(stderr, "%s: %s\n", fails ? "HIPNORM_REQUIRE_GPU=1, but" : "skipped",
                 error.what());
    return fails ? 1 : kSkipped;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
