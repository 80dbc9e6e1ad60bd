// What stands for gpu.hip in a build without GPU kernels: nothing there is measured on a GPU.
#include <stdexcept>

#include "bench/gpu.h"

namespace hipnorm::bench {
namespace {

[[noreturn]] void refuse() { throw std::runtime_error("this build has no GPU kernels"); }

}  // namespace

std::string gpu_name(int) { refuse(); }
Graph::Graph(void* stream, const std::function<void()>&) : stream_(stream) { refuse(); }
Graph::~Graph() = default;
void Graph::launch() { refuse(); }

}  // namespace hipnorm::bench
