#include "bench/tune/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "bench/tune/worker.h"
#include "csrc/dispatch/text.h"

namespace hipnorm::tune {
namespace {

using Clock = std::chrono::steady_clock;

// A reply is a few KB, the list of a cell's configs some 100; a worker that writes without end must
// not fill the parent's memory.
constexpr std::size_t kLongestReply = 16 << 20;

void close_one(int& descriptor) {
  if (descriptor >= 0) close(descriptor);
  descriptor = -1;
}

std::atomic<int> signals = 0;

bool write_all(int descriptor, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = write(descriptor, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<std::size_t>(n);
  }
  return true;
}

}  // namespace

bool interrupted() { return signals.load() > 0; }

void watch_signals() {
  struct sigaction action = {};
  action.sa_handler = [](int) {
    if (signals.fetch_add(1) > 0) _exit(130);
  };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

std::string_view to_string(End end) {
  switch (end) {
    case End::answered: return "answered";
    case End::hang: return "hang";
    case End::crash: return "crash";
    case End::garbage: return "garbage";
  }
  return "unknown";
}

void Supervisor::start() {
  stop();
  signal(SIGPIPE, SIG_IGN);  // a worker that died is found by the failed write
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0) {
    throw std::runtime_error(concat("pipe: ", std::strerror(errno)));
  }
  if (pipe2(out, O_CLOEXEC) != 0) {
    close(in[0]);
    close(in[1]);
    throw std::runtime_error(concat("pipe: ", std::strerror(errno)));
  }
  std::vector<char*> arguments;
  for (std::string& argument : command_) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    // Its own group: Ctrl-C reaches the parent alone, which ends the worker in its own time.
    setpgid(0, 0);
    // The reply pipe last: its descriptor may be the number that is about to be replaced.
    const int replies = fcntl(out[1], F_DUPFD_CLOEXEC, kReplyDescriptor + 1);
    dup2(in[0], STDIN_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);  // whatever it prints is no result
    dup2(replies, kReplyDescriptor);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  to_ = in[1];
  from_ = out[0];
  buffer_.clear();
  if (pid_ < 0) {
    const int error = errno;
    stop();
    throw std::runtime_error(concat("fork: ", std::strerror(error)));
  }
}

void Supervisor::stop() {
  close_one(to_);
  close_one(from_);
  if (pid_ <= 0) return;
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

// The process has closed its end: how did it die?
Reply Supervisor::ended() {
  int status = 0;
  // It may have closed the pipe and live on.
  for (int i = 0; i < 100 && waitpid(pid_, &status, WNOHANG) == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (i == 99) {
      stop();
      return {.end = End::crash, .text = "", .reason = "closed its pipe"};
    }
  }
  pid_ = -1;
  stop();
  if (WIFSIGNALED(status)) {
    return {.end = End::crash,
            .text = "",
            .reason = concat("signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ')')};
  }
  return {.end = End::crash, .text = "", .reason = concat("exit code ", WEXITSTATUS(status))};
}

Reply Supervisor::ask(const std::string& line, std::chrono::duration<double> limit) {
  if (!running()) start();
  if (!write_all(to_, line + '\n')) return ended();
  const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
  for (;;) {
    if (const std::size_t at = buffer_.find('\n'); at != std::string::npos) {
      Reply reply{.end = End::answered, .text = buffer_.substr(0, at), .reason = ""};
      buffer_.erase(0, at + 1);
      if (buffer_.empty()) return reply;
      stop();  // more than one line: nobody knows which is the answer
      return {.end = End::garbage, .text = reply.text, .reason = "more than one line of answer"};
    }
    if (buffer_.size() > kLongestReply) {
      stop();
      return {.end = End::garbage, .text = "", .reason = "an answer without end"};
    }
    if (interrupted()) {
      stop();
      return {.end = End::hang, .text = "", .reason = "interrupted"};
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) {
      stop();
      return {.end = End::hang, .text = "", .reason = concat("no answer in ", limit.count(), " s")};
    }
    pollfd events{.fd = from_, .events = POLLIN, .revents = 0};
    const int ready = poll(&events, 1, static_cast<int>(std::min<long>(left.count(), 1000)));
    if (ready <= 0) continue;
    char chunk[65536];
    const ssize_t n = read(from_, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return ended();
    buffer_.append(chunk, static_cast<std::size_t>(n));
  }
}

}  // namespace hipnorm::tune
