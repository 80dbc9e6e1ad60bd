// The journal of sweeps: one line of JSON for each thing that happened, on disk before the next one
// starts. A process killed at any moment loses at most the candidate in flight.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace hipnorm::tune {

// How times are taken and winners chosen. Raise it when that changes: results of two methods are
// never mixed.
inline constexpr int kMethod = 3;

// What results must share to be compared. `id` is made of the rest.
struct SessionInfo {
  std::string id;
  std::string arch;
  std::string name;  // of the device
  std::string driver;
  int compute_units = 0;
  std::string build;  // hash of the sources
  int method = kMethod;
  std::string commit;  // empty: not in a git checkout
  bool dirty = false;
  std::string started;  // UTC, ISO 8601

  void make_id();
  nlohmann::json to_json() const;
  static SessionInfo from_json(const nlohmann::json& line);
};

struct Journal {
  std::vector<SessionInfo> sessions;  // in the order in which they first occur
  // session id → cell → config → line of type "candidate"
  std::map<std::string, std::map<std::string, std::map<std::string, nlohmann::json>>> candidates;
  // session id → cell → line of type "result", the last one
  std::map<std::string, std::map<std::string, nlohmann::json>> results;
  std::size_t whole_bytes = 0;  // of the file, up to the end of its last whole line

  // Throws std::runtime_error when the file cannot be read or a line (other than a last one that
  // was cut off) is no journal line.
  static Journal read(const std::string& path);
};

// Appends lines; each is on disk when write() returns.
class JournalWriter {
 public:
  // Cuts the file to `keep` bytes first. Throws std::runtime_error.
  JournalWriter(const std::string& path, std::size_t keep);
  ~JournalWriter();
  JournalWriter(const JournalWriter&) = delete;
  JournalWriter& operator=(const JournalWriter&) = delete;
  void write(const nlohmann::json& line);

 private:
  std::string path_;
  int file_ = -1;
};

}  // namespace hipnorm::tune
