// The worker process of a sweep: one line of JSON in on standard input, one out on descriptor 3.
// Whatever a kernel does to this process, the parent lives on.
//
//   {"do": "hello", "device": "cpu"}      → {"ok", "protocol", "arch", "name", "driver",
//                                            "compute_units", "build"}
//   {"do": "cell", "cell": "<table key>", "most": 200}
//                                         → {"ok", "default": config, "configs": [config, …]}
//   {"do": "try", "config": c, "rounds": n}
//                 → {"ok", "outcome": "ok", "worst", "times": [[default], [c], [default]]}
//                 or {"ok", "outcome": "invalid" | "wrong" | "launch failed", "reason"}
//   {"do": "race", "configs": [c, …], "rounds": n} → {"ok", "times": [[s, …], …]}
//   anything that fails → {"ok": false, "error": "…"}
// Times are seconds, one for each round; a try of no rounds judges only. The worker ends when its
// input does.
#pragma once

#include <string>

namespace hipnorm::tune {

inline constexpr int kProtocol = 1;
inline constexpr int kReplyDescriptor = 3;

// Returns the process's exit code.
int run_worker();

}  // namespace hipnorm::tune
