#include "bench/tune/cell.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "csrc/dispatch/text.h"

namespace hipnorm::tune {
namespace {

// Hidden sizes of published models, and widths that are no multiple of anything.
constexpr std::int64_t kGridCols[] = {128,  768,  769,  1024, 1600,  2048,  2560,  3072, 4096,
                                      5120, 6144, 7168, 8192, 12288, 16384, 18432, 50257};
constexpr std::int64_t kGridRows[] = {1, 16, 128, 1024, 8192, 65536};
// The largest tensor of the grid, in elements: 2 GiB in 16 bits.
constexpr std::int64_t kGridElements = std::int64_t{1} << 30;

}  // namespace

Problem problem_of(const TableKey& cell) {
  Problem problem;
  problem.op = cell.op;
  problem.x = cell.x;
  problem.has_weight = cell.weight != DType::none;
  problem.has_bias = cell.bias;
  problem.weight = problem.has_weight ? cell.weight : cell.bias ? cell.x : DType::none;
  problem.rows = cell.rows;
  problem.cols = cell.cols;
  if (problem.is_backward()) {
    problem.grads = {.dx = true, .dweight = problem.has_weight, .dbias = problem.has_bias};
  }
  if (cell.rows > 1) {
    const std::uint64_t bits = 64u | static_cast<std::uint64_t>(cell.cols * size_of(cell.x));
    problem.alignment = static_cast<int>(bits & (~bits + 1));
  }
  return problem;
}

std::string to_string(const TableKey& cell) {
  return concat(hipnorm::to_string(cell.op), ' ', hipnorm::to_string(cell.x),
                " weight=", hipnorm::to_string(cell.weight), " bias=", cell.bias ? 1 : 0, ' ',
                cell.rows, 'x', cell.cols);
}

TableKey parse_cell(const std::string& text) {
  std::istringstream in(text);
  std::string op, x, weight, bias, shape, rest;
  in >> op >> x >> weight >> bias >> shape;
  const auto fail = [&] { throw std::invalid_argument(concat("no cell: '", text, "'")); };
  if (!weight.starts_with("weight=") || (bias != "bias=0" && bias != "bias=1") || in >> rest)
    fail();
  const auto parsed_op = parse_op(op);
  const auto parsed_x = parse_dtype(x), parsed_weight = parse_dtype(weight.substr(7));
  if (!parsed_op || !parsed_x || !parsed_weight) fail();
  const std::vector<bench::Shape> shapes = bench::parse_shapes(shape);
  if (shapes.size() != 1) fail();
  return {.op = *parsed_op,
          .x = *parsed_x,
          .weight = *parsed_weight,
          .bias = bias == "bias=1",
          .cols = shapes[0].cols,
          .rows = shapes[0].rows};
}

std::vector<bench::Shape> parse_shapes(std::string_view text) {
  std::vector<bench::Shape> shapes;
  const auto add = [&](const bench::Shape& shape) {
    if (std::find(shapes.begin(), shapes.end(), shape) == shapes.end()) shapes.push_back(shape);
  };
  for (const std::string_view item : bench::split_list(text)) {
    if (item == "grid") {
      for (const std::int64_t rows : kGridRows) {
        for (const std::int64_t cols : kGridCols) {
          if (rows * cols <= kGridElements) add({rows, cols});
        }
      }
    } else {
      for (const bench::Shape& shape : bench::parse_shapes(item)) add(shape);
    }
  }
  return shapes;
}

std::vector<TableKey> make_cells(const std::vector<bench::Shape>& shapes,
                                 const std::vector<DType>& dtypes, const std::vector<Op>& ops) {
  std::vector<TableKey> cells;
  for (const bench::Shape& shape : shapes) {
    for (const DType dtype : dtypes) {
      for (const Op op : ops) {
        cells.push_back({.op = op,
                         .x = dtype,
                         .weight = dtype,
                         .bias = true,
                         .cols = shape.cols,
                         .rows = shape.rows});
      }
    }
  }
  return cells;
}

}  // namespace hipnorm::tune
