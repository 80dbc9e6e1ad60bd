// The machine that a test executable runs kernels on. The tests are the same sources for all of
// them; each executable links one of cpu_backend.cpp, emulator_backend.cpp and gpu_backend.hip.
#pragma once

#include "kernels/launch.h"
#include "tests/kernels/array.h"

namespace hipnorm::testing {

// What the tests ask to be run on.
const Device& device();

// Whether every launch costs so much that only few shapes and configs can be run (the emulator).
bool emulated();

// Ways to run one launch, numbered from 0, none of which may change a bit of its results: orders of
// the tasks (CPU), schedules of the threads (emulator), mere repetition (GPU).
int ways();

// An array where the kernels reach it: itself, or a copy of it in the GPU's memory, guards
// included, at the same place relative to a multiple of 64 bytes.
class Mirror {
 public:
  // What a kernel finds in it.
  enum class Contents { copied, unset, scratch };
  // With HIPNORM_TEST_EXACT_MEMORY=1, for compute-sanitizer, the GPU's memory ends where the array
  // does, without guards; unless `copied` it is left as it was allocated, and scratch, of which a
  // kernel may leave parts so, is not copied back.
  explicit Mirror(const Array& array, Contents contents = Contents::copied);
  ~Mirror();
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  // Null for an empty array.
  void* data() const { return data_; }
  // Copies contents and guards back. Null `array`: nothing.
  void fetch(Array& array) const;

 private:
  void* block_ = nullptr;  // in the GPU's memory
  void* data_ = nullptr;
  bool fetched_ = true;
};

// Runs a launch in way number `way` and waits for its end.
Error run_forward_launch(const ForwardArgs& args, const Launch& launch, int way);
Error run_backward_launch(const BackwardArgs& args, const Launch& launch, int way);

}  // namespace hipnorm::testing
