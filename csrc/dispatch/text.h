// Text for messages.
#pragma once

#include <sstream>
#include <string>

namespace hipnorm {

// "cols=", 7, " is …" → one string, each piece as operator<< prints it.
template <typename... Pieces>
std::string concat(const Pieces&... pieces) {
  std::ostringstream out;
  (out << ... << pieces);
  return out.str();
}

}  // namespace hipnorm
