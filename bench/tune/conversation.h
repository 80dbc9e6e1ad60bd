// What a sweep asks of its worker process, as JSON (bench/tune/worker.h), over any number of
// processes: one that ended is replaced, and the cell laid out again.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/tune/statistics.h"
#include "bench/tune/supervisor.h"

namespace hipnorm::tune {

// The sweep cannot go on; what() tells the user.
struct Stopped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Three of the lists of times in a worker's answer; nothing where a time is not a positive number:
// a worker that lies.
std::optional<Duel> duel_of(const nlohmann::json& times, std::size_t first_default,
                            std::size_t candidate, std::size_t second_default);

// Every call throws Stopped when the program was interrupted.
class Conversation {
 public:
  // `hello_limit`: seconds that a new process may take until it greets.
  Conversation(const std::vector<std::string>& worker, std::string device, int most,
               double hello_limit)
      : worker_(worker), device_(std::move(device)), most_(most), hello_limit_(hello_limit) {}

  // The worker's description of its device and build. Throws std::runtime_error where none comes,
  // std::invalid_argument with the worker's reason where the device cannot be used.
  nlohmann::json hello();

  // Lays out `cell`, and again whenever a process is new: {"ok": true, "default": config,
  // "configs": [config, ...]} (at most `most`), or {"ok": false, "error": reason}.
  nlohmann::json lay_out(const std::string& cell);

  // Whether a process has the cell laid out; starts one where the last one ended.
  bool ready();

  // The answer to a request about the cell, within `limit` seconds; valid JSON where it is
  // `answered`. On anything else the process is gone.
  Reply send(const nlohmann::json& request, double limit);

  // The next request finds a fresh process.
  void stop() { worker_.stop(); }

 private:
  Reply ask(const nlohmann::json& request, double limit);

  Supervisor worker_;
  std::string device_;
  int most_;
  double hello_limit_;
  std::string cell_;
  bool laid_out_ = false;
};

}  // namespace hipnorm::tune
