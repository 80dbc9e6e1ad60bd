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

// Commit of the sources that this program was built from, and whether they had changes; empty where
// git could not say. (Asked by the build: the program may run where there is no checkout.)
struct Commit {
  std::string_view hash;
  bool dirty = false;
};
Commit commit();
// The source folder that this program was built from.
std::string_view source_root();

}  // namespace hipnorm::tune
