// The shapes that are measured: parsing M x N, and the named sets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hipnorm::bench {

struct Shape {
  std::int64_t rows = 0;  // M: what leading dimensions multiply to
  std::int64_t cols = 0;  // N: the normalized length
  std::int64_t elements() const { return rows * cols; }
  friend bool operator==(const Shape&, const Shape&) = default;
};

std::string to_string(const Shape& shape);  // "2304x36864"

// A named set: "seed" (the shapes of the bug reports that this library answers) or "llm" (rows x
// hidden size of published models). Empty for any other name.
std::vector<Shape> shape_set(std::string_view name);

// A list such as "seed,7x9,1x256": sets and single shapes, in the order given, each shape at most
// once. M and N are decimal integers of at least 1 whose [M, N] tensor of 8-byte elements has a
// size below 2^63 bytes. Throws std::invalid_argument that names the item, what was expected and
// why.
std::vector<Shape> parse_shapes(std::string_view text);

// Splits at commas; "" is one empty item, so that callers refuse it as such.
std::vector<std::string_view> split_list(std::string_view text);

}  // namespace hipnorm::bench
