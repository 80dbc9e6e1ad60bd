// hipnorm-tune verify: the rows of a table against the default, measured again.
#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "bench/tune/cell.h"
#include "bench/tune/commands.h"
#include "bench/tune/conversation.h"
#include "bench/tune/supervisor.h"

namespace hipnorm::tune {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr int kRounds = 41;
constexpr double kLimit = 900;

// The answer's JSON, or an exception with what happened.
json ask(Supervisor& worker, const json& request) {
  const Reply reply = worker.ask(request.dump(), std::chrono::duration<double>(kLimit));
  if (reply.end != End::answered) {
    throw std::runtime_error(fmt::format("{}: {}", to_string(reply.end), reply.reason));
  }
  json answer = json::parse(reply.text);
  if (!answer.value("ok", false)) throw std::runtime_error(answer.value("error", "no reason"));
  return answer;
}

std::vector<Table> load(const std::string& path) {
  std::vector<Table> list;
  if (path.empty()) {
    for (const Table* table : tables()) list.push_back(*table);
    return list;
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::invalid_argument(path + " cannot be read");
  list.emplace_back(
      std::string{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()}, path);
  return list;
}

}  // namespace

int verify(const VerifyOptions& options) {
  Supervisor worker(options.worker);
  const std::string arch = ask(worker, {{"do", "hello"}, {"device", options.device}}).at("arch");
  const Clock::time_point begin = Clock::now();
  std::size_t checked = 0, left_out = 0, bad = 0;
  for (const Table& table : load(options.table)) {
    if (table.arch() != arch) continue;
    for (const TableRow& row : table.rows()) {
      const double used = std::chrono::duration<double>(Clock::now() - begin).count();
      if (interrupted() || (options.budget > 0 && used > options.budget)) {
        ++left_out;
        continue;
      }
      const std::string name = fmt::format("{}  {}", to_string(row.key), to_string(row.config));
      ++checked;
      try {
        if (!worker.running()) ask(worker, {{"do", "hello"}, {"device", options.device}});
        ask(worker, {{"do", "cell"}, {"cell", to_string(row.key)}, {"most", 1}});
        const json answer = ask(worker, {{"do", "try"},
                                         {"config", to_string(row.config)},
                                         {"rounds", options.accuracy_only ? 0 : kRounds}});
        if (answer.at("outcome") != "ok") {
          ++bad;
          worker.stop();  // who knows what it wrote where
          fmt::print("{}: {}: {}\n", answer.at("outcome").get<std::string>(), name,
                     answer.value("reason", ""));
          continue;
        }
        if (options.accuracy_only) {
          fmt::print("right: {}\n", name);
          continue;
        }
        const auto duel = duel_of(answer.at("times"), 0, 1, 2);
        if (!duel) throw std::runtime_error("times that are none");
        bad += duel->slower();
        fmt::print("{}: {}: {:.1f} us, default {:.1f} and {:.1f} us, gap {:.2f} us\n",
                   duel->slower() ? "slower" : "good", name, duel->candidate * 1e6,
                   duel->first_default * 1e6, duel->second_default * 1e6, duel->gap() * 1e6);
      } catch (const std::exception& error) {
        ++bad;
        worker.stop();
        fmt::print("failed: {}: {}\n", name, error.what());
      }
    }
  }
  fmt::print("{} rows of {} verified, {} bad{}.\n", checked, arch, bad,
             left_out > 0 ? fmt::format(", {} not reached", left_out) : "");
  return bad == 0 ? 0 : 1;
}

}  // namespace hipnorm::tune
