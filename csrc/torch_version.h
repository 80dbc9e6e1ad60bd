// Was this library built for the torch that it runs in?
#pragma once

#include <optional>
#include <string>

namespace hipnorm {

// nullopt where major and minor version agree, else a message that names both. torch's C++ ABI may
// change with every minor version.
std::optional<std::string> torch_version_mismatch();

}  // namespace hipnorm
