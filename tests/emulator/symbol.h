// The name of a function, from the symbol table of the file that it came from.
#pragma once

#include <string>

namespace hipnorm::emulator {

// Without namespaces and parameters: "forward_rows<float, 32>". Empty if the file has no such
// symbol (stripped, or not ELF).
std::string name_of_function(void (*function)());

}  // namespace hipnorm::emulator
