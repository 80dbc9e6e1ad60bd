// A worker process, from the parent's side.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace hipnorm::tune {

// How a request ended. The words are what a journal holds.
enum class End : std::uint8_t { answered, hang, crash, garbage };
std::string_view to_string(End end);

struct Reply {
  End end = End::answered;
  std::string text;    // answered, garbage: the line
  std::string reason;  // else what happened: "signal 11 (Segmentation fault)", "no answer in 20 s"
};

// Whether SIGINT or SIGTERM came since watch_signals(); a second one ends the program.
bool interrupted();
void watch_signals();

class Supervisor {
 public:
  // `command`: the program and its arguments.
  explicit Supervisor(std::vector<std::string> command) : command_(std::move(command)) {}
  ~Supervisor() { stop(); }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  bool running() const { return pid_ > 0; }
  // A fresh process, the old one killed. Throws std::runtime_error where none can be started.
  void start();
  // Kills the process, if there is one, and waits for its end.
  void stop();
  // Sends a line and waits for one. On anything but `answered` the process is gone afterwards.
  // Ends early, as a hang, when the program is interrupted.
  Reply ask(const std::string& line, std::chrono::duration<double> limit);

 private:
  Reply ended();
  std::vector<std::string> command_;
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string buffer_;
};

}  // namespace hipnorm::tune
