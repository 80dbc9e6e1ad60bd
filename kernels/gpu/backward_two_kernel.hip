// LayerNorm backward in two kernels: column strips reduce dweight and dbias, then rows on the chip
// give dx. x and dy are read twice, and few partial sums are written: M rows of N columns cost
// 5·M·N·e + 16·parts·N bytes. For few rows, or where a row's sums find no room beside it.
#include "kernels/gpu/columns.h"
#include "kernels/gpu/launchers.h"

namespace hipnorm::gpu {
namespace {

template <class T>
__global__ void __launch_bounds__(kMaxColumnThreads) column_sums(ColumnArgs args) {
  const auto block = static_cast<std::int64_t>(blockIdx.x);
  reduce_columns<T, false>(args, block / args.strips, block % args.strips,
                           lds_at<accumulate_t<T>>(0));
}

}  // namespace

template <class T>
hipError_t backward_two_kernel(const BackwardArgs& args, const Launch& launch) {
  if (launch.problem.grads.columns()) {
    const int parts = launch.config.parts;
    const ColumnArgs columns = column_args(args, launch, parts, parts > 1);
    const Grid grid{.blocks = columns.strips * columns.parts,
                    .threads = launch.config.threads,
                    .lds_bytes = static_cast<std::size_t>(
                        column_lds_bytes(launch.problem, launch.config.threads)),
                    .stream = static_cast<hipStream_t>(launch.stream)};
    hipError_t error = launch_kernel(column_sums<T>, grid, columns);
    if (error == hipSuccess && columns.partial) error = reduce_parts<T>(args, launch);
    if (error != hipSuccess) return error;
  }
  return launch.problem.grads.dx ? backward_row_dx<T>(args, launch) : hipSuccess;
}

template hipError_t backward_two_kernel<HIPNORM_ELEMENT>(const BackwardArgs&, const Launch&);

}  // namespace hipnorm::gpu
