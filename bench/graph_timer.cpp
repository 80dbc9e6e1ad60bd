#include "bench/graph_timer.h"

#include <ATen/ops/empty_like.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <vector>

#include "bench/gpu.h"

namespace hipnorm::bench {
namespace {

// Twice the largest cache known on a GPU (256 MiB on MI300X and MI350X), and few enough
// calls to record a graph of them in a second.
constexpr std::int64_t kBytes = std::int64_t{512} << 20;
constexpr std::int64_t kMostCalls = 512;

Statistics copy_of(const Statistics& statistics) {
  if (!statistics.mean.defined()) return {};
  return {statistics.mean.clone(), statistics.rstd.clone()};
}

}  // namespace

Latencies time_in_graphs(const Inputs& inputs, Direction direction, const Call& ours,
                         const Statistics& our_statistics, const Call& aten,
                         const Statistics& aten_statistics, Stopwatch& stopwatch,
                         CacheFlusher& flusher, const Repeats& repeats) {
  const std::int64_t call_bytes = inputs.tensor_bytes() * (direction == Direction::forward ? 2 : 3);
  const auto calls =
      static_cast<std::size_t>(std::clamp<std::int64_t>(kBytes / call_bytes, 8, kMostCalls));
  std::vector<Inputs> copies(calls, inputs);
  for (Inputs& copy : copies) {
    copy.x = inputs.x.clone();
    if (direction == Direction::backward) copy.dy = inputs.dy.clone();
  }
  const c10::impl::VirtualGuardImpl device(inputs.x.device().type());
  void* const stream = device.getStream(inputs.x.device()).native_handle();

  // Outputs, and the memory behind them, live as long as the graphs that write them.
  struct Recorded {
    std::vector<Statistics> statistics;
    std::vector<Outputs> outputs;
    std::unique_ptr<Graph> graph;
  };
  const auto record = [&](const Call& call, const Statistics& statistics) {
    Recorded recorded{.statistics = {}, .outputs = std::vector<Outputs>(calls), .graph = {}};
    for (std::size_t i = 0; i < calls; ++i) recorded.statistics.push_back(copy_of(statistics));
    const auto all = [&] {
      for (std::size_t i = 0; i < calls; ++i) {
        recorded.outputs[i] = call(copies[i], recorded.statistics[i]);
      }
    };
    // Once as they are: what the allocator and the operators keep for later is in place then.
    all();
    recorded.outputs.assign(calls, {});
    recorded.graph = std::make_unique<Graph>(stream, all);
    return recorded;
  };
  std::vector<Recorded> sides;
  sides.push_back(record(ours, our_statistics));
  sides.push_back(record(aten, aten_statistics));
  sides.push_back(record(
      [direction](const Inputs& in, const Statistics&) {
        Outputs out;
        out[0] = at::empty_like(in.x);
        limit(in, direction, out[0]);
        return out;
      },
      {}));

  std::vector<Side> timed;
  for (const Recorded& side : sides) {
    timed.push_back({[] {}, [&side] { side.graph->launch(); }, [] {}});
  }
  const std::vector<double> seconds = time_flushed(timed, stopwatch, flusher, repeats);
  const auto each = static_cast<double>(calls);
  return {.hipnorm = seconds[0] / each, .aten = seconds[1] / each, .copy = seconds[2] / each};
}

}  // namespace hipnorm::bench
