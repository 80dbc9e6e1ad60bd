#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "bench/report.h"

namespace hipnorm::bench {
namespace {

std::string reason() { return std::strerror(errno); }

}  // namespace

OutputFile::OutputFile(const std::string& path) : path_(path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::is_directory(status)) {
    throw UsageError(fmt::format("--output: cannot write '{}': it is a folder", path));
  }
  const bool exists = std::filesystem::exists(status);
  if (!exists || std::filesystem::is_regular_file(status)) {
    if (exists) {
      path_ = std::filesystem::canonical(path, error).string();
      // The rename needs no right to the old file, but a write-protected one is meant to stay.
      if (error || access(path_.c_str(), W_OK) != 0) {
        throw UsageError(fmt::format("--output: cannot write '{}': {}", path,
                                     error ? error.message() : reason()));
      }
    }
    temporary_ = path_ + ".partial";
  }
  const std::string& target = temporary_.empty() ? path_ : temporary_;
  file_ = open(target.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) {
    throw UsageError(fmt::format("--output: cannot write '{}': {}", target, reason()));
  }
}

OutputFile::~OutputFile() {
  if (file_ >= 0) close(file_);
}

void OutputFile::write(const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(file_, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      throw std::runtime_error(
          fmt::format("cannot write '{}': {}", temporary_.empty() ? path_ : temporary_, reason()));
    }
    done += static_cast<std::size_t>(written);
  }
}

void OutputFile::commit() {
  const bool closed = close(file_) == 0;
  file_ = -1;
  if (!closed || (!temporary_.empty() && std::rename(temporary_.c_str(), path_.c_str()) != 0)) {
    throw std::runtime_error(fmt::format("cannot finish '{}': {}", path_, reason()));
  }
}

}  // namespace hipnorm::bench
