// What the benchmark asks of a GPU's runtime itself: torch reaches graphs only through libraries
// that are not linked here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace hipnorm::bench {

// "NVIDIA H200". Throws std::runtime_error where the runtime does not tell.
std::string gpu_name(int index);

// Work recorded once and launched as a whole: a launch of it costs the processor microseconds,
// however many kernels it holds, so that its time is the GPU's alone.
class Graph {
 public:
  // Records what `work` queues on `stream` (a cudaStream_t or hipStream_t of the current device,
  // not the default stream). Memory that it allocates must stay allocated while the graph is used.
  Graph(void* stream, const std::function<void()>& work);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch();  // on the stream it was recorded from

 private:
  void* stream_;
  void* graph_ = nullptr;       // hipGraph_t
  void* executable_ = nullptr;  // hipGraphExec_t
};

}  // namespace hipnorm::bench
