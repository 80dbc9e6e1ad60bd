// hipnorm-tune regret: what the cost model's choices would have cost, by a journal's times.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "bench/tune/cell.h"
#include "bench/tune/commands.h"
#include "bench/tune/journal.h"
#include "bench/tune/statistics.h"
#include "csrc/dispatch/cost_model.h"
#include "csrc/dispatch/known_devices.h"

namespace hipnorm::tune {
namespace {

using nlohmann::json;

// The device that a session measured: the known one of its architecture and number of units
// ("NVIDIA H200" has as many as an H100: the name decides), or this machine's processor.
const Device& device_of_session(const SessionInfo& session) {
  const Device* found = nullptr;
  for (const KnownDevice& known : known_devices()) {
    if (known.device.arch != session.arch || known.device.compute_units != session.compute_units) {
      continue;
    }
    if (session.name.find(known.name) != std::string::npos) return known.device;
    if (found == nullptr) found = &known.device;
  }
  if (found == nullptr && session.arch.starts_with("cpu")) found = &device_of("cpu");
  if (found == nullptr || found->arch != session.arch ||
      found->compute_units != session.compute_units) {
    throw std::invalid_argument(
        fmt::format("the journal measured {} ({}, {} compute units), of which there is no data "
                    "sheet; --device names a device",
                    session.name, session.arch, session.compute_units));
  }
  return *found;
}

// Time over that of the default of then, which ran beside it.
double ratio(const json& line) {
  return line.at("time_us").get<double>() / line.at("default_us").get<double>();
}

}  // namespace

int regret(const RegretOptions& options) {
  const Journal journal = Journal::read(options.journal);
  const auto last = std::find_if(
      journal.sessions.rbegin(), journal.sessions.rend(),
      [&](const SessionInfo& session) { return journal.results.contains(session.id); });
  if (last == journal.sessions.rend()) throw std::invalid_argument("the journal holds no result");
  const Device& device =
      options.device.empty() ? device_of_session(*last) : device_of(options.device);

  std::vector<double> regrets;
  std::size_t untried = 0, failed = 0;
  std::string worst = "none";
  double most = 0;
  for (const auto& [cell, result] : journal.results.at(last->id)) {
    if (result.at("tried").get<std::size_t>() == 0) continue;  // nothing to compare with
    const std::string chosen = to_string(default_config(problem_of(parse_cell(cell)), device));
    double own = 1;  // it was the default then, too
    if (chosen == result.at("config").get<std::string>()) {
      own = ratio(result);
    } else if (chosen != result.at("default").get<std::string>()) {
      const auto tried = journal.candidates.find(last->id);
      const json* line = nullptr;
      if (tried != journal.candidates.end() && tried->second.contains(cell)) {
        const auto found = tried->second.at(cell).find(chosen);
        if (found != tried->second.at(cell).end()) line = &found->second;
      }
      if (line == nullptr) {
        ++untried;
        fmt::print("not tried: {}  {}\n", cell, chosen);
        continue;
      }
      if (line->at("outcome") != "ok") {
        ++failed;
        fmt::print("{}: {}  {}\n", line->at("outcome").get<std::string>(), cell, chosen);
        continue;
      }
      own = ratio(*line);
    }
    const double cost = std::max(1.0, own / ratio(result));
    regrets.push_back(cost);
    if (cost <= most) continue;
    most = cost;
    worst = fmt::format("{}  {} against {}", cell, chosen, result.at("config").get<std::string>());
  }
  fmt::print(
      "Session {} on {} ({}): the default of {} cells takes {:.3f} x the best (geometric "
      "mean), {:.3f} x at worst: {}.\n",
      last->id, last->name, last->arch, regrets.size(), geometric_mean(regrets), most, worst);
  fmt::print("{} cells whose default was not tried, {} where it failed.\n", untried, failed);
  return regrets.empty() || failed > 0 ? 1 : 0;
}

}  // namespace hipnorm::tune
