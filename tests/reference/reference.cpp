#include "tests/reference/reference.h"

#include "tests/reference/rows.h"

namespace hipnorm::reference {
namespace {

template <typename Real>
ForwardTruth forward_in(const ForwardInputs& in) {
  const std::int64_t n = in.cols;
  const DType accumulate = accumulate_type(in.x.dtype);
  const std::vector<Real> weight = load_vector<Real>(in.weight, n, 1);
  const std::vector<Real> bias = load_vector<Real>(in.bias, n, 0);
  std::vector<Real> x(static_cast<std::size_t>(n));
  ForwardTruth truth;
  truth.y.reserve(static_cast<std::size_t>(in.rows * n));
  for (std::int64_t r = 0; r < in.rows; ++r) {
    load_row(in.x.dtype, in.x.data, r * in.x.stride, n, x.data());
    const auto row = statistics<Real>(x.data(), n, in.eps, accumulate);
    truth.mean.push_back(static_cast<double>(row.mean()));
    truth.rstd.push_back(static_cast<double>(row.rstd));
    for (std::size_t c = 0; c < x.size(); ++c) {
      truth.y.push_back(static_cast<double>(row.normalized(x[c]) * weight[c] + bias[c]));
    }
  }
  return truth;
}

template <typename Real>
BackwardTruth backward_in(const BackwardInputs& in) {
  const std::int64_t n = in.cols;
  const std::size_t cols = static_cast<std::size_t>(n);
  const std::vector<Real> weight = load_vector<Real>(in.weight, n, 1);
  std::vector<Real> x(cols), dy(cols), normalized(cols), gradient(cols);
  std::vector<Real> dweight(cols), dbias(cols), dweight_magnitude(cols), dbias_magnitude(cols);
  BackwardTruth truth;
  truth.dx.reserve(static_cast<std::size_t>(in.rows) * cols);
  for (std::int64_t r = 0; r < in.rows; ++r) {
    load_row(in.x.dtype, in.x.data, r * in.x.stride, n, x.data());
    load_row(in.dy.dtype, in.dy.data, r * in.dy.stride, n, dy.data());
    const auto row = backward_row<Real>(
        in.mean.data != nullptr
            ? saved_statistics<Real>(in, r)
            : statistics<Real>(x.data(), n, in.eps, accumulate_type(in.x.dtype)),
        x.data(), dy.data(), weight.data(), n, normalized.data(), gradient.data());
    for (std::size_t c = 0; c < cols; ++c) {
      truth.dx.push_back(static_cast<double>(row.dx(gradient[c], normalized[c])));
      dweight[c] += dy[c] * normalized[c];
      dbias[c] += dy[c];
      dweight_magnitude[c] += std::fabs(dy[c] * normalized[c]);
      dbias_magnitude[c] += std::fabs(dy[c]);
    }
  }
  const auto narrow = [](const std::vector<Real>& v) {
    return std::vector<double>(v.begin(), v.end());
  };
  truth.dweight = narrow(dweight);
  truth.dbias = narrow(dbias);
  truth.dweight_magnitude = narrow(dweight_magnitude);
  truth.dbias_magnitude = narrow(dbias_magnitude);
  return truth;
}

}  // namespace

ForwardTruth forward(const ForwardInputs& in) {
  return in.x.dtype == DType::f64 ? forward_in<long double>(in) : forward_in<double>(in);
}

BackwardTruth backward(const BackwardInputs& in) {
  return in.x.dtype == DType::f64 ? backward_in<long double>(in) : backward_in<double>(in);
}

}  // namespace hipnorm::reference
