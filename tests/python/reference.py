"""LayerNorm in float64 by its definition, and how far from it a result may be."""

import math
import os

import torch

ops = torch.ops.hipnorm
DEVICE = torch.device({"cpu": "cpu", "cuda": "cuda:0"}[os.environ.get("HIPNORM_TEST_DEVICE", "cpu")])

# Relative to the largest magnitude of the result. Half and bfloat16: one unit in the last place
# (2^-10, 2^-7), because the arithmetic is float32 and only the store rounds. float32: 16 units
# (2^-23 each) for sums over at most 5000 terms. float64: the same 16 units of 2^-52.
TOLERANCE = {
    torch.float64: 16 * 2.0**-52,
    torch.float32: 16 * 2.0**-23,
    torch.float16: 2.0**-10,
    torch.bfloat16: 2.0**-7,
}


def forward(x, ndim=1, weight=None, bias=None, eps=1e-5):
    """y, mean, rstd in float64."""
    x = x.double()
    dims = tuple(range(-ndim, 0))
    mean = x.mean(dims, keepdim=True)
    rstd = ((x - mean).square().mean(dims, keepdim=True) + eps).rsqrt()
    y = (x - mean) * rstd
    if weight is not None:
        y = y * weight.double()
    if bias is not None:
        y = y + bias.double()
    return y, mean, rstd


def backward(dy, x, ndim=1, weight=None, eps=1e-5):
    """dX, dW, dB in float64; dW and dB as if there were a weight and a bias."""
    dy = dy.double()
    _, mean, rstd = forward(x, ndim, eps=eps)
    x_hat = (x.double() - mean) * rstd
    dims = tuple(range(-ndim, 0))
    g = dy if weight is None else dy * weight.double()
    c1 = g.mean(dims, keepdim=True)
    c2 = (g * x_hat).mean(dims, keepdim=True)
    rows = (-1,) + tuple(x.shape[x.dim() - ndim :])
    return (
        rstd * (g - c1 - x_hat * c2),
        (dy * x_hat).reshape(rows).sum(0),
        dy.reshape(rows).sum(0),
    )


def layer_norm(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    """The definition in differentiable operations: right in every torch.func transform.

    F.layer_norm is no reference there: in torch 2.13 on the CPU, jacrev of jacrev over input and
    weight gives a wrong d²/dweight dx.
    """
    dims = tuple(range(-len(normalized_shape), 0))
    centred = x - x.mean(dims, keepdim=True)
    y = centred * (centred.square().mean(dims, keepdim=True) + eps).rsqrt()
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def same_bits(a, b):
    """Equal in dtype, shape and every byte: torch.equal takes -0 for 0, and NaN for no NaN."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    a, b = (t.detach().contiguous().flatten().view(torch.uint8) for t in (a, b))
    return torch.equal(a, b)


def assert_close(actual, expected, name="result", factor=1.0):
    assert actual.shape == expected.shape, f"{name}: {actual.shape} is not {expected.shape}"
    if actual.numel() == 0:
        return
    scale = max(expected.abs().max().item(), 1e-30)
    error = (actual.double() - expected).abs().max().item()
    limit = factor * TOLERANCE[actual.dtype] * scale
    assert math.isfinite(error) and error <= limit, f"{name}: error {error} exceeds {limit}"


def inputs(shape, dtype=torch.float32, ndim=1, weight_dtype=None, has_weight=True, has_bias=True):
    """x, weight, bias, dy; x off centre, so that a forgotten mean shows."""
    normalized = list(shape[len(shape) - ndim :])
    weight_dtype = weight_dtype or dtype
    x = (torch.randn(shape) * 0.5 - 2.3).to(dtype)
    weight = torch.randn(normalized).to(weight_dtype) if has_weight else None
    bias = torch.randn(normalized).to(weight_dtype) if has_bias else None
    return x, weight, bias, torch.randn(shape).to(dtype), normalized
