// A whole run: every case checked, timed and written.
#pragma once

#include "bench/options.h"

namespace hipnorm::bench {

// Returns the exit code: 0, or kExitWrong when a result was wrong or a call failed. Throws
// UsageError when the options ask for what this machine cannot do, before anything is measured, and
// std::runtime_error when the output cannot be written.
int run(const Options& options);

// --list-variants: the variants on standard output.
void list_variants();

}  // namespace hipnorm::bench
