// Cells: the shapes that a sweep measures, each for an op and dtypes. A cell is the key of a table
// row (csrc/dispatch/table.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/shapes.h"
#include "csrc/dispatch/table.h"

namespace hipnorm::tune {

// The problem that a cell stands for: contiguous tensors from an allocator that aligns to 64 bytes,
// every gradient asked for.
Problem problem_of(const TableKey& cell);

// "backward bf16 weight=bf16 bias=1 2304x36864": how cells are printed and found in a journal.
std::string to_string(const TableKey& cell);
// What to_string prints. Throws std::invalid_argument.
TableKey parse_cell(const std::string& text);

// "grid": model widths × rows, odd widths among them. The sets of bench/shapes.h and single MxN
// too. Throws std::invalid_argument.
std::vector<bench::Shape> parse_shapes(std::string_view text);

// Every combination, weights of the input's dtype and a bias: what nn.LayerNorm is.
std::vector<TableKey> make_cells(const std::vector<bench::Shape>& shapes,
                                 const std::vector<DType>& dtypes, const std::vector<Op>& ops);

}  // namespace hipnorm::tune
