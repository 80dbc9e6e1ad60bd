#include "tests/emulator/symbol.h"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string_view>
#include <vector>

namespace hipnorm::emulator {
namespace {

// The loaded file that holds `address`.
struct Module {
  std::uintptr_t address;
  std::uintptr_t base = 0;
  std::string file;
};

int find_module(dl_phdr_info* info, std::size_t, void* data) {
  Module& module = *static_cast<Module*>(data);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    const std::uintptr_t start = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && module.address - start < segment.p_memsz) {
      module.base = info->dlpi_addr;
      module.file = info->dlpi_name[0] != '\0' ? info->dlpi_name : "/proc/self/exe";
      return 1;
    }
  }
  return 0;
}

template <class T>
std::vector<T> read(std::ifstream& file, std::uint64_t offset, std::uint64_t bytes) {
  std::vector<T> items(bytes / sizeof(T));
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(reinterpret_cast<char*>(items.data()),
            static_cast<std::streamsize>(items.size() * sizeof(T)));
  return items;
}

// Kernels have internal linkage or hidden symbols, of which the dynamic table, and so dladdr(),
// knows nothing: this reads .symtab.
std::string symbol_at(const Module& module) {
  std::ifstream file(module.file, std::ios::binary);
  const auto header = read<ElfW(Ehdr)>(file, 0, sizeof(ElfW(Ehdr)));
  if (!file) return "";
  const auto sections = read<ElfW(Shdr)>(file, header[0].e_shoff,
                                         std::uint64_t{header[0].e_shnum} * sizeof(ElfW(Shdr)));
  for (const auto& section : sections) {
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) continue;
    const auto& names = sections[section.sh_link];
    for (const auto& symbol : read<ElfW(Sym)>(file, section.sh_offset, section.sh_size)) {
      if ((symbol.st_info & 0xf) == STT_FUNC && symbol.st_value + module.base == module.address) {
        auto name =
            read<char>(file, names.sh_offset + symbol.st_name, names.sh_size - symbol.st_name);
        name.push_back('\0');
        return name.data();
      }
    }
  }
  return "";
}

// "void a::(anonymous namespace)::f<b::C>(D)" is f<b::C>.
std::string short_name(std::string name) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  for (std::size_t at; (at = name.find(kAnonymous)) != name.npos;)
    name.erase(at, kAnonymous.size());
  std::size_t start = 0;
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (depth == 0 && c == '(') return name.substr(start, i - start);
    if (depth == 0 && (c == ' ' || c == ':')) start = i + 1;
    depth += c == '<' ? 1 : c == '>' ? -1 : 0;
  }
  return name.substr(start);
}

}  // namespace

std::string name_of_function(void (*function)()) {
  static std::map<void (*)(), std::string> known;  // a symbol table takes some 10 ms to read
  const auto [entry, is_new] = known.try_emplace(function);
  Module module{.address = reinterpret_cast<std::uintptr_t>(function), .file = {}};
  if (!is_new || dl_iterate_phdr(find_module, &module) == 0) return entry->second;
  const std::string symbol = symbol_at(module);
  char* demangled = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, nullptr);
  entry->second = short_name(demangled != nullptr ? demangled : symbol);
  std::free(demangled);
  return entry->second;
}

}  // namespace hipnorm::emulator
