// Which build this is: put in by CMake.
#pragma once

#include <string>
#include <string_view>

#include "kernels/variants.h"

namespace hipnorm::tune {

// SHA-256 of all kernel and dispatch sources: results of two builds are never mixed.
std::string_view build_hash();
// SHA-256 of the sources that the variant is made of, 16 digits: a row of a table is stale when
// they have changed.
std::string_view sources_hash(const VariantInfo& variant);

// Commit of the folder `root` and whether it has changes, asked of git at run time; empty without.
struct Commit {
  std::string hash;
  bool dirty = false;
};
Commit commit_of(const std::string& root);
// The source folder that this program was built from.
std::string_view source_root();

}  // namespace hipnorm::tune
