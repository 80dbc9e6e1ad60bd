#include "bench/gpu.h"

#include <stdexcept>

#include "kernels/gpu/platform.h"

namespace hipnorm::bench {
namespace {

void check(hipError_t error, const char* what) {
  if (error == hipSuccess) return;
  static_cast<void>(hipGetLastError());
  throw std::runtime_error(std::string(what) + ": " + hipGetErrorString(error));
}

}  // namespace

std::string gpu_name(int index) {
  hipDeviceProp_t properties = {};
  check(hipGetDeviceProperties(&properties, index), "the GPU's name");
  return properties.name;
}

Graph::Graph(void* stream, const std::function<void()>& work) : stream_(stream) {
  const auto on = static_cast<hipStream_t>(stream);
  // Relaxed: torch's allocator may have to ask the runtime for memory meanwhile.
  check(hipStreamBeginCapture(on, hipStreamCaptureModeRelaxed), "the recording of a graph");
  hipGraph_t graph = nullptr;
  try {
    work();
  } catch (...) {
    if (hipStreamEndCapture(on, &graph) == hipSuccess) static_cast<void>(hipGraphDestroy(graph));
    throw;
  }
  check(hipStreamEndCapture(on, &graph), "the recording of a graph");
  hipGraphExec_t executable = nullptr;
  const hipError_t error = hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0);
  if (error != hipSuccess) static_cast<void>(hipGraphDestroy(graph));
  check(error, "a graph");
  graph_ = graph;
  executable_ = executable;
}

Graph::~Graph() {
  static_cast<void>(hipGraphExecDestroy(static_cast<hipGraphExec_t>(executable_)));
  static_cast<void>(hipGraphDestroy(static_cast<hipGraph_t>(graph_)));
}

void Graph::launch() {
  check(hipGraphLaunch(static_cast<hipGraphExec_t>(executable_), static_cast<hipStream_t>(stream_)),
        "the launch of a graph");
}

}  // namespace hipnorm::bench
