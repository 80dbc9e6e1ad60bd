#include "bench/tune/worker.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "bench/tune/build_info.h"
#include "bench/tune/cell.h"
#include "bench/tune/search_space.h"
#include "bench/tune/workbench.h"
#include "csrc/dispatch/cost_model.h"
#include "csrc/dispatch/validate.h"

namespace hipnorm::tune {
namespace {

using nlohmann::json;

Config parse(const std::string& text) {
  PartialConfig partial;
  std::string error;
  if (!parse_config(text, partial, error)) throw std::invalid_argument(error);
  return partial.config;
}

class Session {
 public:
  json answer(const json& request) {
    const std::string what = request.at("do");
    if (what == "hello") return hello(request);
    if (what == "cell") return cell(request);
    if (what == "try") return attempt(request);
    if (what == "race") return race(request);
    throw std::invalid_argument("unknown request " + what);
  }

 private:
  json hello(const json& request) {
    machine_ = machine(request.at("device"));
    return {{"ok", true},
            {"protocol", kProtocol},
            {"arch", machine_.device->arch},
            {"name", machine_.name},
            {"driver", machine_.driver},
            {"compute_units", machine_.device->compute_units},
            {"build", build_hash()}};
  }

  json cell(const json& request) {
    workbench_.reset();
    const TableKey key = parse_cell(request.at("cell"));
    problem_ = problem_of(key);
    default_ = default_config(problem_, *machine_.device);
    json configs = json::array();
    for (const Config& config :
         search_space(problem_, *machine_.device, request.at("most").get<std::size_t>())) {
      configs.push_back(to_string(config));
    }
    workbench_ = make_workbench(machine_, key);
    return {{"ok", true}, {"default", to_string(default_)}, {"configs", std::move(configs)}};
  }

  json attempt(const json& request) {
    const Config config = parse(request.at("config"));
    if (const auto reason = validate(config, problem_, *machine_.device)) {
      return {{"ok", true}, {"outcome", "invalid"}, {"reason", *reason}};
    }
    Finding finding;
    try {
      finding = bench().check(config);
    } catch (const std::exception& error) {
      return {{"ok", true}, {"outcome", "launch failed"}, {"reason", error.what()}};
    }
    if (!finding.right) return {{"ok", true}, {"outcome", "wrong"}, {"reason", finding.reason}};
    const Config turns[] = {default_, config, default_};
    return {{"ok", true},
            {"outcome", "ok"},
            {"worst", finding.worst},
            {"times", bench().time(turns, request.at("rounds"))}};
  }

  json race(const json& request) {
    std::vector<Config> configs;
    for (const json& text : request.at("configs")) configs.push_back(parse(text));
    for (const Config& config : configs) {
      if (const auto reason = validate(config, problem_, *machine_.device)) {
        throw std::invalid_argument(to_string(config) + ": " + *reason);
      }
    }
    return {{"ok", true}, {"times", bench().time(configs, request.at("rounds"))}};
  }

  Workbench& bench() {
    if (!workbench_) throw std::logic_error("no cell was given");
    return *workbench_;
  }

  Machine machine_;
  Problem problem_;
  Config default_;
  std::unique_ptr<Workbench> workbench_;
};

bool reply(const json& message) {
  const std::string line = message.dump(-1, ' ', false, json::error_handler_t::replace) + '\n';
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t n = write(kReplyDescriptor, line.data() + done, line.size() - done);
    if (n <= 0) return false;
    done += static_cast<std::size_t>(n);
  }
  return true;
}

}  // namespace

int run_worker() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a parent that was killed leaves no busy worker behind
  Session session;
  for (std::string line; std::getline(std::cin, line);) {
    json message;
    try {
      message = session.answer(json::parse(line));
    } catch (const std::exception& error) {
      message = {{"ok", false}, {"error", error.what()}};
    }
    if (!reply(message)) return 1;
  }
  return 0;
}

}  // namespace hipnorm::tune
