#include "bench/tune/conversation.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>

namespace hipnorm::tune {

using nlohmann::json;

namespace {

// Laying out a cell of 10⁹ elements, the truth included, takes minutes on a few cores.
constexpr double kCellLimit = 900;

// Empty where they are no times.
std::vector<double> list_of(const json& times, std::size_t i) {
  if (!times.is_array() || i >= times.size() || !times[i].is_array()) return {};
  std::vector<double> values;
  for (const json& value : times[i]) {
    if (!value.is_number()) return {};
    values.push_back(value.get<double>());
    if (!(values.back() > 0) || !std::isfinite(values.back())) return {};
  }
  return values;
}

}  // namespace

std::optional<Duel> duel_of(const json& times, std::size_t first_default, std::size_t candidate,
                            std::size_t second_default) {
  const std::vector<double> a = list_of(times, first_default), b = list_of(times, candidate),
                            c = list_of(times, second_default);
  if (a.empty() || b.empty() || c.empty()) return std::nullopt;
  return duel(a, b, c);
}

json Conversation::hello() {
  const Reply reply = ask({{"do", "hello"}, {"device", device_}}, hello_limit_);
  if (reply.end != End::answered) {
    throw std::runtime_error(fmt::format("the worker does not answer hello: {}: {}",
                                         to_string(reply.end), reply.reason));
  }
  json answer = json::parse(reply.text);
  if (!answer.value("ok", false)) throw std::invalid_argument(answer.value("error", "no reason"));
  return answer;
}

json Conversation::lay_out(const std::string& cell) {
  cell_ = cell;
  laid_out_ = false;
  const Reply reply = send({{"do", "cell"}, {"cell", cell}, {"most", most_}}, kCellLimit);
  if (reply.end != End::answered) return {{"ok", false}, {"error", reply.reason}};
  json answer = json::parse(reply.text);
  laid_out_ = answer.value("ok", false);
  return answer;
}

bool Conversation::ready() {
  if (worker_.running() && laid_out_) return true;
  return lay_out(cell_).value("ok", false);
}

Reply Conversation::send(const json& request, double limit) {
  if (!worker_.running()) {
    worker_.start();
    hello();
  }
  return ask(request, limit);
}

Reply Conversation::ask(const json& request, double limit) {
  const auto stop_if_interrupted = [this] {
    if (!interrupted()) return;
    worker_.stop();
    throw Stopped("interrupted; --resume goes on from here");
  };
  stop_if_interrupted();
  Reply reply = worker_.ask(request.dump(), std::chrono::duration<double>(limit));
  stop_if_interrupted();
  if (reply.end == End::answered && !json::accept(reply.text)) {
    worker_.stop();
    reply = {
        .end = End::garbage, .text = "", .reason = "answered '" + reply.text.substr(0, 80) + "'"};
  }
  if (reply.end != End::answered) laid_out_ = false;
  return reply;
}

}  // namespace hipnorm::tune
