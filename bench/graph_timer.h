// GPU time of calls too short for two events around one of them: many calls in a graph.
#pragma once

#include <functional>

#include "bench/inputs.h"
#include "bench/operators.h"
#include "bench/report.h"
#include "bench/timer.h"

namespace hipnorm::bench {

// One side's call; statistics are those of the same side's forward, undefined in a forward.
using Call = std::function<Outputs(const Inputs&, const Statistics&)>;

// Copies of the inputs, so many that they do not fit into any cache, each worked on by one call;
// the calls recorded in a graph, one for hipnorm, one for aten, one for the limit. Medians of the
// graphs' times in turns, divided by the number of calls. The current stream must not be the
// default one.
Latencies time_in_graphs(const Inputs& inputs, Direction direction, const Call& ours,
                         const Statistics& our_statistics, const Call& aten,
                         const Statistics& aten_statistics, Stopwatch& stopwatch,
                         CacheFlusher& flusher, const Repeats& repeats);

}  // namespace hipnorm::bench
