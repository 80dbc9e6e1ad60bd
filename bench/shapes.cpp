#include "bench/shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <stdexcept>

namespace hipnorm::bench {
namespace {

// Reads the whole of `text` as a decimal integer without sign.
std::int64_t parse_size(std::string_view text, std::string_view item, std::string_view what) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range) {
    throw std::invalid_argument(
        fmt::format("shape '{}': {} does not fit a 64-bit integer", item, what));
  }
  const bool digits = !text.empty() && text.front() >= '0' && text.front() <= '9';
  if (!digits || error != std::errc{} || stop != end) {
    throw std::invalid_argument(
        fmt::format("shape '{}': expected MxN (two decimal integers, for instance 2304x36864) or "
                    "one of seed, llm; {} is '{}'",
                    item, what, text));
  }
  return value;
}

Shape parse_shape(std::string_view item) {
  const std::size_t x = item.find('x');
  if (x == std::string_view::npos) {
    throw std::invalid_argument(
        fmt::format("shape '{}': expected MxN (two decimal integers, for instance 2304x36864) or "
                    "one of seed, llm",
                    item));
  }
  const Shape shape{parse_size(item.substr(0, x), item, "M (rows)"),
                    parse_size(item.substr(x + 1), item, "N (columns)")};
  if (shape.rows == 0 || shape.cols == 0) {
    throw std::invalid_argument(
        fmt::format("shape '{}': an empty tensor has nothing to measure; expected M and N of at "
                    "least 1",
                    item));
  }
  if (shape.rows > std::numeric_limits<std::int64_t>::max() / 8 / shape.cols) {
    throw std::invalid_argument(
        fmt::format("shape '{}': M*N*8 bytes does not fit a 64-bit integer", item));
  }
  return shape;
}

}  // namespace

std::string to_string(const Shape& shape) { return fmt::format("{}x{}", shape.rows, shape.cols); }

std::vector<Shape> shape_set(std::string_view name) {
  if (name == "seed") {
    return {{512, 256}, {1152, 11776}, {2304, 16384}, {2304, 36864}, {2304, 103008}, {4608, 40920}};
  }
  if (name == "llm") {
    return {
        {1, 256},       // one token of a small head: call overhead alone
        {1, 8192},      // decoding one token, 70B
        {64, 4096},     // decoding a batch of 64, 7B
        {32768, 768},   // GPT-2 small, BERT base, ViT-B
        {4096, 1024},   // GPT-2 medium, BERT large
        {8192, 1600},   // GPT-2 XL: no power of two
        {4096, 2560},   // Phi-2, Pythia 2.8B
        {8192, 4096},   // GPT-J, OPT 6.7B
        {4096, 5120},   // OPT 13B
        {4096, 7168},   // OPT 30B
        {16384, 8192},  // Command R
        {4096, 12288},  // GPT-3 175B
        {262144, 128},  // per-head norm of queries and keys: 32 heads of 128 x 8192 tokens
    };
  }
  return {};
}

std::vector<std::string_view> split_list(std::string_view text) {
  std::vector<std::string_view> items;
  for (std::size_t begin = 0;;) {
    const std::size_t comma = text.find(',', begin);
    items.push_back(text.substr(begin, comma - begin));
    if (comma == std::string_view::npos) return items;
    begin = comma + 1;
  }
}

std::vector<Shape> parse_shapes(std::string_view text) {
  std::vector<Shape> shapes;
  for (const std::string_view item : split_list(text)) {
    std::vector<Shape> found = shape_set(item);
    if (found.empty()) found.push_back(parse_shape(item));
    for (const Shape& shape : found) {
      if (std::find(shapes.begin(), shapes.end(), shape) != shapes.end()) {
        throw std::invalid_argument(fmt::format("shape {} is given twice", to_string(shape)));
      }
      shapes.push_back(shape);
    }
  }
  return shapes;
}

}  // namespace hipnorm::bench
