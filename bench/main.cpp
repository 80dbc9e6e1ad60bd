// hipnorm-bench: see --help.
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "bench/options.h"
#include "bench/run.h"

int main(int argc, char** argv) {
  using namespace hipnorm::bench;
  try {
    const std::optional<Options> options = parse_options(argc, argv);
    if (!options) return 0;
    if (options->list_variants) {
      list_variants();
      return 0;
    }
    return run(*options);
  } catch (const UsageError& error) {
    fmt::print(stderr, "hipnorm-bench: {}\n", error.what());
    return kExitUsage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "hipnorm-bench: {}\n", error.what());
    return kExitWrong;
  }
}
