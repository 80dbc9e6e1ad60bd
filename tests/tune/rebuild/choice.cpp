// Prints what select() takes for f32 forwards of the given rows and cols: "64 256  64 257 …".
#include <cstdio>
#include <cstdlib>

#include "csrc/dispatch/select.h"

int main(int argc, char** argv) {
  hipnorm::Device device;
  device.arch = "cpu-test";
  device.compute_units = 2;
  for (int i = 1; i + 1 < argc; i += 2) {
    hipnorm::Problem problem;
    problem.weight = problem.x;
    problem.has_weight = problem.has_bias = true;
    problem.rows = std::atoi(argv[i]);
    problem.cols = std::atoi(argv[i + 1]);
    std::puts(describe(select(problem, device)).c_str());
  }
}
