"""Calls, and what is right, for tests on a GPU: the truth is formed there in float64, a part of the
rows at a time, so that tensors of billions of elements can be judged."""

import pytest
import torch
from reference import TOLERANCE, backward, forward, ops

ALL = [True, True, True]
BACKWARDS = [
    ops.layer_norm_backward,
    ops.layer_norm_backward_fused,
    ops.layer_norm_backward_two_kernel,
]
CHUNK = 1 << 26  # elements judged at a time: 512 MiB in float64


def needs_memory(gigabytes):
    free = torch.cuda.mem_get_info()[0] / 1e9
    if free < gigabytes:
        pytest.skip(f"needs {gigabytes} GB of the GPU's memory; {free:.0f} are free")


def make(rows, cols, dtype=torch.float32, weight_dtype=None):
    """x, dy, weight, bias; x off centre. Random numbers in the dtype itself: large tensors."""
    x = torch.empty(rows, cols, dtype=dtype).normal_(-2.3, 0.5)
    dy = torch.empty(rows, cols, dtype=dtype).normal_()
    weight, bias = torch.randn(2, cols).to(weight_dtype or dtype).unbind(0)
    return x, dy, weight.clone(), bias.clone()


def near(got, want, factor, name, magnitude=None):
    """Within `factor` of the largest magnitude that enters; by default that of the result."""
    got = got.double()
    scale = max((want if magnitude is None else magnitude).abs().max().item(), 1e-30)
    error = (got - want).abs().max().item()
    assert error <= factor * scale, f"{name}: error {error} exceeds {factor} × {scale}"


def expect_right(x, dy, weight=None, bias=None, eps=1e-5, backwards=BACKWARDS):
    """Forward and the backward operators of one call, against float64."""
    cols = x.shape[-1]
    y, mean, rstd = ops.layer_norm_forward(x, [cols], weight, bias, eps)
    assert y.shape == x.shape and y.dtype == x.dtype and y.is_contiguous()
    x2, y2 = x.reshape(-1, cols), y.view(-1, cols)
    step = max(1, CHUNK // max(cols, 1))
    # Roundings of long sums: √N more of them, in the accumulate type.
    accumulate = TOLERANCE[torch.float64 if x.dtype == torch.float64 else torch.float32]
    long_row = max(1.0, (cols / 5000) ** 0.5)
    y_bound = max(TOLERANCE[x.dtype], accumulate * long_row)
    for r in range(0, x2.shape[0], step):
        want_y, want_mean, want_rstd = forward(x2[r : r + step], 1, weight, bias, eps)
        # In float64 the truth is rounded as well, by |x|·rstd·|weight|: much, where rstd is large.
        rounded = want_y.abs()
        if x.dtype == torch.float64:
            gain = want_rstd if weight is None else want_rstd * weight.double().abs()
            rounded = rounded + x2[r : r + step].abs() * gain
        near(y2[r : r + step], want_y, y_bound, f"y from row {r}", rounded)
        near(mean.view(-1, 1)[r : r + step], want_mean, accumulate * long_row, "mean")
        near(rstd.view(-1, 1)[r : r + step], want_rstd, 4 * accumulate * long_row, "rstd")
    for op in backwards:
        grads = op(dy, x, [cols], mean, rstd, weight, bias, ALL)
        judge_backward(grads, dy, x2, weight, bias, eps, step, str(op))
    return y, mean, rstd


def judge_backward(grads, dy, x2, weight, bias, eps, step, name):
    dx, dweight, dbias = grads
    cols = x2.shape[1]
    dy2, dx2 = dy.reshape(-1, cols), dx.view(-1, cols)
    accumulate = TOLERANCE[torch.float64 if x2.dtype == torch.float64 else torch.float32]
    long_row = max(1.0, (cols / 5000) ** 0.5)
    sums = [torch.zeros(cols, dtype=torch.float64) for _ in range(2)]
    for r in range(0, x2.shape[0], step):
        part = slice(r, r + step)
        want_dx, want_dweight, want_dbias = backward(dy2[part], x2[part], 1, weight, eps)
        # dX is a difference: where N = 2 nearly nothing is left of rstd·dy·weight.
        terms = dy2[part].double() * forward(x2[part], eps=eps)[2]
        terms = terms if weight is None else terms * weight.double()
        # Saved in float32, a mean of 4.6 standard deviations moves x̂ by that many roundings.
        bound = max(TOLERANCE[x2.dtype], 4 * accumulate * long_row)
        near(dx2[part], want_dx, bound, f"{name}: dX from row {r}", terms)
        sums[0] += want_dweight
        sums[1] += want_dbias
    many_rows = max(1.0, (x2.shape[0] / 5000) ** 0.5)
    for got, want, which in zip((dweight, dbias), sums, ("dW", "dB")):
        if got is not None:
            bound = max(TOLERANCE[got.dtype], 8 * accumulate * many_rows)
            near(got, want, bound, f"{name}: {which}")
    assert (dweight is None) == (weight is None) and (dbias is None) == (bias is None)


def expect_exact_sums(rows, cols, dtype=torch.float32, backwards=BACKWARDS):
    """dW and dB as integers, bit for bit: no row can be lost or counted twice. Rows are half +1 and
    half -1, eps = 0, dy is -1, 0 or 1; sums below 2^24 are exact in float32 in any order."""
    assert cols % 2 == 0 and rows < 2**24
    half = torch.randint(0, 2, (rows, cols // 2), dtype=torch.int8).mul_(2).sub_(1)
    signs = torch.cat([half, -half], 1)
    gradient = torch.randint(-1, 2, (rows, cols), dtype=torch.int8)
    x, dy = signs.to(dtype), gradient.to(dtype)
    weight, bias = torch.ones(2, cols).unbind(0)
    _, mean, rstd = ops.layer_norm_forward(x, [cols], weight, bias, 0.0)
    want_dweight = (signs * gradient).sum(0, dtype=torch.int64)
    want_dbias = gradient.sum(0, dtype=torch.int64)
    for op in backwards:
        _, dweight, dbias = op(dy, x, [cols], mean, rstd, weight, bias, ALL)
        assert torch.equal(dweight, want_dweight.float()), op
        assert torch.equal(dbias, want_dbias.float()), op
