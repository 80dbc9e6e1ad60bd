#include "bench/tune/build_info.h"

#include "bench/tune/commit.h"  // made by HipnormCommit.cmake

namespace hipnorm::tune {

std::string_view build_hash() { return HIPNORM_BUILD_HASH; }

std::string_view sources_hash(const VariantInfo& variant) {
  if (variant.kind == DeviceKind::cpu) return HIPNORM_CPU_SOURCES;
  return variant.forward ? HIPNORM_GPU_FORWARD_SOURCES : HIPNORM_GPU_BACKWARD_SOURCES;
}

std::string_view source_root() { return HIPNORM_SOURCE_ROOT; }

Commit commit() { return {HIPNORM_COMMIT, HIPNORM_COMMIT_DIRTY}; }

}  // namespace hipnorm::tune
