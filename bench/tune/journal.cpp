#include "bench/tune/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>

#include "csrc/dispatch/text.h"

namespace hipnorm::tune {
namespace {

using nlohmann::json;

// FNV-1a, 64 bits: names sessions, protects nothing.
std::string short_hash(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw std::runtime_error(concat(path, ": ", what, ": ", std::strerror(errno)));
}

}  // namespace

void SessionInfo::make_id() {
  id = short_hash(
      concat(arch, '\n', name, '\n', driver, '\n', compute_units, '\n', build, '\n', method));
}

json SessionInfo::to_json() const {
  return {{"type", "session"}, {"session", id},
          {"arch", arch},      {"name", name},
          {"driver", driver},  {"build", build},
          {"method", method},  {"commit", commit},
          {"dirty", dirty},    {"compute_units", compute_units},
          {"started", started}};
}

SessionInfo SessionInfo::from_json(const json& line) {
  SessionInfo info;
  info.id = line.at("session");
  info.arch = line.at("arch");
  info.name = line.at("name");
  info.driver = line.at("driver");
  info.compute_units = line.at("compute_units");
  info.build = line.at("build");
  info.method = line.at("method");
  info.commit = line.at("commit");
  info.dirty = line.at("dirty");
  info.started = line.at("started");
  return info;
}

Journal Journal::read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (in && std::filesystem::is_directory(path)) errno = EISDIR, in.close();
  if (!in.is_open()) fail(path, "cannot be read");
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  Journal journal;
  int number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string::npos) break;  // cut off
    ++number;
    try {
      const json line = json::parse(text.begin() + static_cast<std::ptrdiff_t>(at),
                                    text.begin() + static_cast<std::ptrdiff_t>(end));
      const std::string type = line.at("type"), session = line.at("session");
      if (type == "session") {
        const auto same = [&](const SessionInfo& s) { return s.id == session; };
        auto old = std::find_if(journal.sessions.begin(), journal.sessions.end(), same);
        const SessionInfo info = SessionInfo::from_json(line);
        if (old == journal.sessions.end()) {
          journal.sessions.push_back(info);
        } else {
          old->dirty = old->dirty || info.dirty;
        }
      } else if (type == "candidate") {
        journal.candidates[session][line.at("cell")][line.at("config")] = line;
      } else if (type == "result") {
        journal.results[session][line.at("cell")] = line;
      } else {
        throw std::runtime_error("unknown type " + type);
      }
    } catch (const std::exception& error) {
      throw std::runtime_error(concat(path, ":", number, ": no line of a journal: ", error.what()));
    }
    at = end + 1;
    journal.whole_bytes = at;
  }
  return journal;
}

JournalWriter::JournalWriter(const std::string& path, std::size_t keep) : path_(path) {
  file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file_ < 0) fail(path, "cannot be written");
  if (ftruncate(file_, static_cast<off_t>(keep)) != 0 || lseek(file_, 0, SEEK_END) < 0) {
    const int error = errno;
    close(file_);
    errno = error;
    fail(path, "cannot be written");
  }
}

JournalWriter::~JournalWriter() { close(file_); }

void JournalWriter::write(const json& line) {
  const std::string text = line.dump(-1, ' ', false, json::error_handler_t::replace) + '\n';
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(file_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path_, "cannot be written");
    done += static_cast<std::size_t>(n);
  }
  if (fsync(file_) != 0 && errno != EINVAL) fail(path_, "cannot be written");  // EINVAL: a pipe
}

}  // namespace hipnorm::tune
