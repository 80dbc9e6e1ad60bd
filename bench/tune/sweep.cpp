#include "bench/tune/sweep.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>

#include "bench/tune/build_info.h"
#include "bench/tune/cell.h"
#include "bench/tune/conversation.h"
#include "bench/tune/display.h"
#include "bench/tune/journal.h"
#include "bench/tune/statistics.h"
#include "bench/tune/supervisor.h"
#include "bench/tune/worker.h"

namespace hipnorm::tune {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
using nlohmann::json;

// Rounds of the three stages: every config; the best eight; the best three, in a fresh process. A
// short budget cuts the later two, down to as many as the first.
constexpr int kTryRounds = 5, kRaceRounds = 15, kFinalRounds = 41;
constexpr std::size_t kRacers = 8, kFinalists = 3;
// A config may take SweepOptions::least_limit, or 50 times what the default took: one that has not
// answered by then hangs.
constexpr double kLimitFactor = 50;
constexpr int kDefaultTries = 3;
// Of a cell's share of the budget, what the first stage may use.
constexpr double kTryShare = 0.75;

double since(Clock::time_point begin) { return Seconds(Clock::now() - begin).count(); }

struct Standing {
  std::string config;
  double ratio;  // to the default's time
};

class Sweep {
 public:
  explicit Sweep(const SweepOptions& options)
      : options_(options),
        worker_(options.worker, options.device, options.most, options.hello_limit) {}

  int run() {
    open_session();
    const Clock::time_point begin = Clock::now();
    int exit_code = 0;
    for (std::size_t i = 0; i < options_.cells.size() && exit_code == 0; ++i) {
      const std::string cell = to_string(options_.cells[i]);
      if (done_.contains(cell)) {
        display_.note(fmt::format("[{}/{}] {}: done before", i + 1, options_.cells.size(), cell));
        continue;
      }
      const double left = options_.budget - since(begin);
      if (options_.budget > 0 && left <= 0) {
        display_.note(fmt::format("the budget of {} s is used up; {} cells are left for --resume",
                                  options_.budget, options_.cells.size() - i));
        break;
      }
      share_ = options_.budget > 0 ? left / static_cast<double>(options_.cells.size() - i) : 0;
      display_.begin_cell(fmt::format("[{}/{}] {}", i + 1, options_.cells.size(), cell),
                          options_.budget > 0 ? left : 0);
      try {
        sweep_cell(cell);
      } catch (const Stopped& stop) {
        display_.note(fmt::format("hipnorm-tune: {}", stop.what()));
        exit_code = interrupted() ? 130 : 1;
      }
    }
    worker_.stop();
    print_summary(options_.cells, done_, failures());
    return exit_code;
  }

 private:
  // ---- The session ----------------------------------------------------------------------------
  void open_session() {
    const json hello = worker_.hello();
    if (hello.value("protocol", 0) != kProtocol) {
      throw std::runtime_error("the worker speaks another protocol: is it of another build?");
    }
    session_.arch = hello.at("arch");
    session_.name = hello.at("name");
    session_.driver = hello.at("driver");
    session_.compute_units = hello.at("compute_units");
    session_.build = hello.at("build");
    const Commit built_from = commit();
    session_.commit = built_from.hash;
    session_.dirty = built_from.dirty;
    session_.started = fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr)));
    session_.make_id();

    std::size_t keep = 0;
    if (std::filesystem::exists(options_.journal)) {
      Journal old = Journal::read(options_.journal);
      keep = old.whole_bytes;
      tried_ = std::move(old.candidates[session_.id]);
      for (auto& [cell, line] : old.results[session_.id]) {
        if (line.value("complete", false)) done_[cell] = line;
      }
    }
    journal_.emplace(options_.journal, keep);
    journal_->write(session_.to_json());
    display_.note(fmt::format("{} ({}, {} compute units), journal {}, session {}", session_.name,
                              session_.arch, session_.compute_units, options_.journal,
                              session_.id));
  }

  // ---- One cell -------------------------------------------------------------------------------
  void sweep_cell(const std::string& cell) {
    const Clock::time_point begin = Clock::now();
    const json laid_out = worker_.lay_out(cell);
    if (!laid_out.value("ok", false)) {
      const std::string reason = laid_out.value("error", "no reason given");
      record(cell, "", {{"outcome", "no room"}, {"reason", reason}});
      display_.note(display_.prefix() + ": left out: " + reason);
      return;
    }
    const std::string chosen = laid_out.at("default");
    limit_ = options_.least_limit + 100;  // until the default's own time is known
    const double default_try = try_default(cell, chosen);
    limit_ = std::max(options_.least_limit, kLimitFactor * default_try);
    call_seconds_ = default_try / (3 * kTryRounds);  // its check counted in: on the safe side

    std::vector<std::string> configs = options_.first;
    for (const std::string config : laid_out.at("configs")) {
      if (std::find(configs.begin(), configs.end(), config) == configs.end()) {
        configs.push_back(config);
      }
    }
    std::erase(configs, chosen);
    std::vector<Standing> standings;
    bool complete = true;
    std::size_t tried = 0;
    for (const std::string& config : configs) {
      if (share_ > 0 && since(begin) > kTryShare * share_) {
        complete = false;
        break;
      }
      const json line = try_config(cell, config);
      ++tried;
      if (line.value("outcome", "") == "ok") {
        standings.push_back(
            {config, line.at("time_us").get<double>() / line.at("default_us").get<double>()});
      }
      double best = 1;
      for (const Standing& s : standings) best = std::min(best, s.ratio);
      display_.progress(tried, configs.size(), best, since(begin), share_);
    }
    sort(standings, kRacers);
    const double left = share_ - since(begin);
    race(cell, chosen, standings, rounds(kRaceRounds, left / 3, standings.size()), false);
    sort(standings, kFinalists);
    const int last = rounds(kFinalRounds, share_ - since(begin), standings.size());
    finish(cell, chosen, standings, last, tried, complete);
  }

  // As many rounds of a race as fit into `seconds`, where there is a budget.
  int rounds(int most, double seconds, std::size_t racers) const {
    if (share_ <= 0) return most;
    const double round = call_seconds_ * static_cast<double>(racers + 2);
    return static_cast<int>(std::clamp<double>(seconds / round, kTryRounds, most));
  }

  static void sort(std::vector<Standing>& standings, std::size_t most) {
    std::stable_sort(standings.begin(), standings.end(),
                     [](const Standing& a, const Standing& b) { return a.ratio < b.ratio; });
    if (standings.size() > most) standings.resize(most);
  }

  // Seconds that the default's try took. Three failures end the sweep: nothing can be compared.
  double try_default(const std::string& cell, const std::string& config) {
    std::string reasons;
    for (int i = 0; i < kDefaultTries; ++i) {
      const Clock::time_point begin = Clock::now();
      const json line = attempt(config);
      if (line.at("outcome") == "ok") return since(begin);
      reasons += fmt::format("\n  {}: {}", line.at("outcome").get<std::string>(),
                             line.value("reason", ""));
      worker_.stop();
    }
    record(cell, config, {{"outcome", "default failed"}, {"reason", reasons}});
    throw Stopped(fmt::format("the default itself, {}, fails {} times on {}:{}", config,
                              kDefaultTries, cell, reasons));
  }

  json try_config(const std::string& cell, const std::string& config) {
    if (const auto found = tried_[cell].find(config); found != tried_[cell].end()) {
      return found->second;
    }
    json line = attempt(config);
    const std::string outcome = line.at("outcome");
    if (outcome != "ok" && outcome != "invalid") {
      // Once more, alone in a fresh process: it may have suffered from what ran before it.
      worker_.stop();
      const json first = line;
      line = attempt(config);
      line["first"] = first;
      worker_.stop();
    }
    record(cell, config, line);
    return line;
  }

  // One try of a config: a line for the journal.
  json attempt(const std::string& config) {
    if (!worker_.ready()) return {{"outcome", "crash"}, {"reason", "the cell cannot be laid out"}};
    const Reply reply =
        worker_.send({{"do", "try"}, {"config", config}, {"rounds", kTryRounds}}, limit_);
    if (reply.end != End::answered) {
      return {{"outcome", to_string(reply.end)}, {"reason", reply.reason}};
    }
    const json answer = json::parse(reply.text);
    if (!answer.value("ok", false)) {
      return {{"outcome", "launch failed"}, {"reason", answer.value("error", "")}};
    }
    if (answer.at("outcome") != "ok") {
      return {{"outcome", answer.at("outcome")}, {"reason", answer.value("reason", "")}};
    }
    const auto duel = duel_of(answer.at("times"), 0, 1, 2);
    if (!duel) return {{"outcome", "garbage"}, {"reason", "times that are none"}};
    return {{"outcome", "ok"},
            {"worst", answer.value("worst", 0.0)},
            {"time_us", duel->candidate * 1e6},
            {"default_us", duel->best_default() * 1e6},
            {"gap_us", duel->gap() * 1e6}};
  }

  // All standings against the default in turns; those whose race fails are dropped. Returns the
  // duels, in the order of the standings that remain.
  std::vector<Duel> race(const std::string& cell, const std::string& chosen,
                         std::vector<Standing>& standings, int rounds, bool fresh) {
    if (standings.empty()) return {};
    if (fresh) worker_.stop();
    json configs = json::array({chosen});
    for (const Standing& s : standings) configs.push_back(s.config);
    configs.push_back(chosen);
    const double limit = limit_ * static_cast<double>(configs.size());
    if (worker_.ready()) {
      const Reply reply =
          worker_.send({{"do", "race"}, {"configs", configs}, {"rounds", rounds}}, limit);
      if (reply.end == End::answered) {
        const json answer = json::parse(reply.text);
        std::vector<Duel> duels;
        for (std::size_t i = 0; i < standings.size() && answer.value("ok", false); ++i) {
          const auto duel = duel_of(answer.at("times"), 0, i + 1, standings.size() + 1);
          if (!duel) break;
          duels.push_back(*duel);
          standings[i].ratio = duel->ratio();
        }
        if (duels.size() == standings.size()) return duels;
      }
    }
    if (standings.size() == 1) {  // failed alone: it is out
      record(cell, standings[0].config, {{"outcome", "crash"}, {"reason", "failed in a race"}});
      standings.clear();
      return {};
    }
    std::vector<Standing> kept;
    std::vector<Duel> duels;
    for (const Standing& standing : standings) {
      std::vector<Standing> alone = {standing};
      const std::vector<Duel> duel = race(cell, chosen, alone, rounds, true);
      if (duel.empty()) continue;
      kept.push_back(alone[0]);
      duels.push_back(duel[0]);
    }
    standings = std::move(kept);
    return duels;
  }

  // The final in a fresh process. A win counts only beyond the gap between the default's twins.
  void finish(const std::string& cell, const std::string& chosen, std::vector<Standing>& standings,
              int last, std::size_t tried, bool complete) {
    const std::vector<Duel> duels = race(cell, chosen, standings, last, true);
    std::size_t best = duels.size();
    for (std::size_t i = 0; i < duels.size(); ++i) {
      if (duels[i].faster() && (best == duels.size() || duels[i].ratio() < duels[best].ratio())) {
        best = i;
      }
    }
    Duel duel;
    std::string winner = chosen;
    if (best < duels.size()) {
      duel = duels[best];
      winner = standings[best].config;
    } else {
      std::vector<Standing> itself = {{chosen, 1}};
      const std::vector<Duel> alone = race(cell, chosen, itself, last, false);
      if (alone.empty()) throw Stopped("the default fails in the final on " + cell);
      duel = alone[0];
      duel.candidate = duel.mean_default();
    }
    json line = {{"config", winner},
                 {"default", chosen},
                 {"time_us", duel.candidate * 1e6},
                 {"default_us", duel.mean_default() * 1e6},
                 {"gap_us", duel.gap() * 1e6},
                 {"tried", tried},
                 {"complete", complete}};
    line["type"] = "result";
    line["session"] = session_.id;
    line["cell"] = cell;
    journal_->write(line);
    done_[cell] = line;
    display_.note(fmt::format("{}: {} {:.1f} us, default {:.1f} us, {:.3f} x{}", display_.prefix(),
                              winner, duel.candidate * 1e6, duel.mean_default() * 1e6,
                              duel.mean_default() / duel.candidate,
                              complete ? "" : fmt::format(" ({} configs tried)", tried)));
  }

  // ---- The journal ----------------------------------------------------------------------------
  void record(const std::string& cell, const std::string& config, json line) {
    line["type"] = "candidate";
    line["session"] = session_.id;
    line["cell"] = cell;
    line["config"] = config;
    journal_->write(line);
    tried_[cell][config] = std::move(line);
  }

  // How often each outcome but "ok" is in the journal for the cells asked for, from before, too.
  std::map<std::string, int> failures() const {
    std::map<std::string, int> counts;
    for (const TableKey& key : options_.cells) {
      const auto cell = tried_.find(to_string(key));
      if (cell == tried_.end()) continue;
      for (const auto& [config, line] : cell->second) {
        const std::string outcome = line.at("outcome");
        if (outcome != "ok") ++counts[outcome];
      }
    }
    return counts;
  }

  const SweepOptions& options_;
  Conversation worker_;
  Display display_;
  SessionInfo session_;
  std::optional<JournalWriter> journal_;
  std::map<std::string, std::map<std::string, json>> tried_;
  std::map<std::string, json> done_;
  double share_ = 0;         // seconds that the cell may use; 0: any
  double limit_ = 0;         // seconds for one config
  double call_seconds_ = 0;  // of the default
};

}  // namespace

int sweep(const SweepOptions& options) {
  if (options.cells.empty()) throw std::invalid_argument("nothing to sweep: no cell was named");
  if (std::filesystem::exists(options.journal) && !options.resume) {
    throw std::invalid_argument(
        fmt::format("the journal {} exists; --resume goes on with it, --journal names another",
                    options.journal));
  }
  return Sweep(options).run();
}

}  // namespace hipnorm::tune
