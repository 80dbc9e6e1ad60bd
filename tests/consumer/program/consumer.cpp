// Built against the installed package: are the operators there by name, right, and is there one
// OpenMP runtime in the process?
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <fstream>
#include <iostream>
#include <optional>
#include <set>
#include <string>
#include <tuple>

namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Forward = std::tuple<at::Tensor, at::Tensor, at::Tensor>(const at::Tensor&,
                                                               c10::SymIntArrayRef,
                                                               const OptionalTensor&,
                                                               const OptionalTensor&, double);

int failures = 0;

void expect_near(const char* what, double got, double wanted) {
  if (std::abs(got - wanted) <= 1e-6) return;
  std::cerr << what << " is " << got << ", expected " << wanted << "\n";
  ++failures;
}

// Files mapped into this process that are an OpenMP runtime: GCC's, LLVM's or Intel's.
std::set<std::string> openmp_runtimes() {
  std::set<std::string> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t slash = line.rfind('/');
    if (slash == std::string::npos) continue;
    const std::string name = line.substr(slash + 1);
    for (const char* runtime : {"libgomp", "libomp", "libiomp5"}) {
      if (name.starts_with(runtime)) found.insert(line.substr(line.find('/')));
    }
  }
  return found;
}

}  // namespace

int main() {
  // The row (1, 3): mean 2, variance 1, so with eps = 3 the rstd is 1/2 and x̂ = (−1/2, 1/2).
  const auto forward = c10::Dispatcher::singleton()
                           .findSchemaOrThrow("hipnorm::layer_norm_forward", "")
                           .typed<Forward>();
  const at::Tensor x = at::tensor({1.0, 3.0}, at::kFloat).reshape({1, 2});
  const at::Tensor weight = at::tensor({2.0, 4.0}, at::kFloat);
  const at::Tensor bias = at::tensor({10.0, 20.0}, at::kFloat);
  const auto [y, mean, rstd] = forward.call(x, {2}, weight, bias, 3.0);
  expect_near("y[0]", y.select(0, 0).select(0, 0).item<double>(), 10 - 1);
  expect_near("y[1]", y.select(0, 0).select(0, 1).item<double>(), 20 + 2);
  expect_near("mean", mean.item<double>(), 2);
  expect_near("rstd", rstd.item<double>(), 0.5);

  const std::set<std::string> runtimes = openmp_runtimes();
  if (runtimes.size() != 1) {
    std::cerr << "expected one OpenMP runtime in the process, found " << runtimes.size() << "\n";
    for (const std::string& runtime : runtimes) std::cerr << "  " << runtime << "\n";
    ++failures;
  }
  if (failures == 0) std::cout << "the installed package works\n";
  return failures == 0 ? 0 : 1;
}
