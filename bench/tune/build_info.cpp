#include "bench/tune/build_info.h"

#include <cstdio>

namespace hipnorm::tune {
namespace {

// What `command` prints, without its last line end; empty where it fails.
std::string output_of(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  std::string text;
  char buffer[4096];
  for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  if (pclose(pipe) != 0) return {};
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::string quoted(const std::string& path) {
  std::string text = "'";
  for (const char c : path) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

std::string_view build_hash() { return HIPNORM_BUILD_HASH; }

std::string_view sources_hash(const VariantInfo& variant) {
  if (variant.kind == DeviceKind::cpu) return HIPNORM_CPU_SOURCES;
  return variant.forward ? HIPNORM_GPU_FORWARD_SOURCES : HIPNORM_GPU_BACKWARD_SOURCES;
}

std::string_view source_root() { return HIPNORM_SOURCE_ROOT; }

Commit commit_of(const std::string& root) {
  const std::string git = "git -C " + quoted(root) + " ";
  Commit commit;
  commit.hash = output_of(git + "rev-parse HEAD 2>/dev/null");
  // What is measured are kernels and dispatch; the tables themselves may be in the making.
  commit.dirty =
      !commit.hash.empty() &&
      !output_of(git + "status --porcelain -- csrc kernels bench cmake 2>/dev/null").empty();
  return commit;
}

}  // namespace hipnorm::tune
