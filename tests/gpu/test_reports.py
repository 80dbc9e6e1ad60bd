"""Failures of LayerNorm kernels on GPUs that were reported elsewhere: each says what went wrong
there, and checks that it does not here."""

import pytest
import torch
from cases import ALL, BACKWARDS, expect_exact_sums, expect_right, make, needs_memory
from reference import assert_close, forward, ops

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32


def randn(*shape, dtype=F32):
    return torch.randn(shape).to(dtype)


def test_small_spread_around_a_large_mean():
    """The variance was lost, and rstd hundreds of times too large."""
    x = torch.randn(1024, 32768) * 0.01 + 100
    _, mean, rstd = ops.layer_norm_forward(x, [32768])
    want = forward(x)
    assert_close(mean, want[1])
    assert_close(rstd, want[2], factor=32)
    assert (1 / rstd.double().square() - 1e-5 - 1e-4).abs().max() < 5e-6


def test_gpu_and_cpu_agree_at_a_large_mean():
    """The two differed in the first digit."""
    x = torch.randn(5, 4) + 2000
    y = ops.layer_norm(x, [4])
    assert torch.allclose(y.cpu(), ops.layer_norm(x.cpu(), [4]), rtol=1e-3, atol=1e-3)
    assert torch.allclose(y.double(), forward(x)[0], rtol=1e-3, atol=1e-3)


def test_consecutive_numbers_far_from_zero():
    """A variance that came out negative made the row NaN."""
    x = torch.tensor([[40000.0, 40001.0, 40002.0, 40003.0]])
    y = ops.layer_norm(x, [4])
    assert y.isfinite().all()
    assert torch.allclose(y.double(), forward(x)[0], rtol=1e-5, atol=1e-5)


def test_variance_beyond_float32():
    """Inf or NaN, on one device but not on the other. Here rstd = 0 and y = bias on every one."""
    for cols in (8, 500, 5000, 40000, 200000):
        signs = torch.where(torch.arange(cols) % 3 == 0, 1.0, -1.0)
        x = torch.tensor([[1e30], [1e35], [3e38]]) * signs
        weight, bias = randn(cols), randn(cols)
        y, mean, rstd = ops.layer_norm_forward(x, [cols], weight, bias)
        assert torch.equal(y, bias.expand(3, cols)) and torch.count_nonzero(rstd) == 0
        assert not mean.isnan().any()
        for op in BACKWARDS:
            dx, dweight, _ = op(randn(3, cols), x, [cols], mean, rstd, weight, bias, ALL)
            assert torch.count_nonzero(dx) == 0 and torch.count_nonzero(dweight) == 0


@pytest.mark.big
def test_2_to_the_32_elements_of_half():
    """A 32-bit index wrapped around: wrong results, or a fault. A row's offset did, too."""
    needs_memory(60)
    x, dy, weight, bias = make(1048641, 4096, F16)
    expect_right(x, dy, weight, bias)


@pytest.mark.big
@pytest.mark.parametrize("rows, cols", [(131072, 16384), (175000, 12288)])
def test_offset_beyond_2_to_the_31(rows, cols):
    """The first of these shapes worked, the second was an illegal access; gradients as well."""
    needs_memory(40)
    expect_right(*make(rows, cols, BF16))


@pytest.mark.parametrize("rows", [65535, 65536, 65537, 200001])
def test_more_rows_than_a_grid_is_high(rows):
    """Rows in the grid's second dimension, which ends at 65535."""
    expect_right(*make(rows, 48, F32))
    expect_exact_sums(rows, 48)


def test_8_million_rows_of_odd_width():
    """Blocks times threads beyond 2^32 in one launch, on AMD."""
    needs_memory(20)
    expect_exact_sums((1 << 23) + 1, 6, BF16)
    x, dy, weight, bias = make((1 << 23) + 1, 5, BF16, F32)
    x += torch.arange(5, dtype=BF16)
    expect_right(x, dy, weight, bias)


def test_strided_views():
    """A view of columns, or swapped dimensions, was read as if it was contiguous."""
    for view in (
        randn(64, 3000)[:, :2048],
        randn(64, 3001)[:, 1:2050],
        randn(4, 8, 700).transpose(1, 2)[..., :8],
        randn(8, 4, 700).transpose(0, 1),
    ):
        cols = view.shape[-1]
        weight, bias = randn(cols), randn(cols)
        y = ops.layer_norm(view, [cols], weight, bias)
        assert_close(y, forward(view, 1, weight, bias)[0], factor=2)
        # Alignment may choose another kernel: equal to the copy's result but for roundings.
        copy = ops.layer_norm(view.contiguous(), [cols], weight, bias)
        assert torch.allclose(y, copy, rtol=1e-5, atol=1e-5)


def test_heads_of_a_packed_tensor():
    """A fault on a view that is not dense: queries inside of queries, keys and values."""
    packed = randn(2048, 48, 128, dtype=BF16)
    x = packed[:, 8:40]
    assert x.stride() == (6144, 128, 1)
    dy, weight, bias = randn(2048, 32, 128, dtype=BF16), randn(128, dtype=BF16), randn(128).to(BF16)
    expect_right(x, dy, weight, bias)


@pytest.mark.parametrize("dtype", [F32, BF16, F16, torch.float64])
def test_hidden_size_3584(dtype):
    """Rows that do not fill whole blocks of threads: misaligned accesses to shared memory."""
    expect_right(*make(77, 3584, dtype))


@pytest.mark.parametrize("dtype", [F32, BF16, F16, torch.float64])
@pytest.mark.parametrize("cols", [64, 769, 4096, 11776])
@pytest.mark.parametrize("offset", [1, 2, 3, 5])
def test_pointers_that_are_not_aligned(cols, dtype, offset):
    """Wide loads from an address that is no multiple of them. All is off by some elements."""

    def shifted(rows, spread=1.0, mean=0.0):
        buffer = torch.empty(rows * cols + offset, dtype=dtype).normal_(mean, spread)
        return buffer[offset:].view(rows, cols)

    expect_right(shifted(33, 0.5, -2.3), shifted(33), shifted(1)[0], shifted(1)[0])


@pytest.mark.parametrize("has_weight, has_bias", [(True, False), (False, True), (False, False)])
def test_absent_parameters(has_weight, has_bias):
    """A missing bias was a crash or garbage; without parameters backward was an error."""
    for rows, cols in ((512, 256), (40, 11776), (3, 103008)):
        x, dy, weight, bias = make(rows, cols, BF16)
        expect_right(x, dy, weight if has_weight else None, bias if has_bias else None)
    x = randn(64, 96).requires_grad_()
    ops.layer_norm(x, [96]).backward(randn(64, 96))
    assert x.grad.abs().max() > 0


def test_no_rows():
    """An invalid launch. Right: an empty y, and dW = dB = 0."""
    x, dy, weight, bias = make(0, 64)
    y, mean, rstd = ops.layer_norm_forward(x, [64], weight, bias)
    assert y.shape == (0, 64)
    for op in BACKWARDS:
        dx, dweight, dbias = op(dy, x, [64], mean, rstd, weight, bias, ALL)
        assert dx.shape == (0, 64)
        assert torch.equal(dweight, torch.zeros(64)) and torch.equal(dbias, torch.zeros(64))


def test_sums_beyond_the_range_of_half():
    """Sums in half precision: beyond 65504, or without digits."""
    x = (torch.rand(16, 40000) * 1000 + 500).half()
    weight, bias = randn(40000, dtype=F16), randn(40000, dtype=F16)
    expect_right(x, randn(16, 40000, dtype=F16), weight, bias)
    dy = torch.full((50000, 8), 100, dtype=F16)
    x = randn(50000, 8, dtype=F16)
    _, mean, rstd = ops.layer_norm_forward(x, [8])
    ones = torch.ones(8)
    for op in BACKWARDS:
        assert torch.equal(
            op(dy, x, [8], mean, rstd, ones, ones, ALL)[2], torch.full((8,), 5e6)
        )


def test_every_part_of_the_column_sums_counts():
    """A hard-coded wave size dropped a part of dW; an odd number of columns did elsewhere."""
    for rows in (1, 31, 32, 33, 63, 64, 65, 127, 1000):
        for cols in (2, 30, 62, 66, 130, 254, 1026):
            expect_exact_sums(rows, cols)
    for cols in (7, 33, 1023, 12345):
        expect_right(*make(257, cols))


def test_launches_that_fail_are_reported():
    """Too many registers for the block: the launch failed unseen, and gradients were garbage.
    Here a config that cannot run is refused before anything is launched."""
    import os
    import subprocess
    import sys

    from conftest import LIBRARY

    program = (
        "import sys, torch; torch.ops.load_library(sys.argv[1]);"
        "torch.ops.hipnorm.layer_norm(torch.randn(4, 200000, device='cuda'), [200000])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, LIBRARY],
        env=dict(os.environ, HIPNORM_FORCE_CONFIG="forward=gpu_forward_wave"),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode != 0
    assert "gpu_forward_wave" in result.stderr and "cannot run" in result.stderr


def test_double_backward():
    """An error, or silently wrong."""
    x = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(6, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(6, dtype=torch.float64, requires_grad=True)
    call = lambda *tensors: ops.layer_norm(tensors[0], [6], *tensors[1:])
    assert torch.autograd.gradgradcheck(call, (x, weight, bias))


@pytest.mark.parametrize("cols", [96, 5000, 60000])
def test_weight_with_zeros(cols):
    """x̂ recovered from y by a division by the weight: NaN where it is 0."""
    x, dy, weight, bias = make(33, cols)
    weight[::3] = 0
    expect_right(x, dy, weight, bias)
    expect_right(x, dy, torch.zeros_like(weight), bias)


@pytest.mark.parametrize("rows", [4096, 100_000])
def test_two_runs_agree(rows):
    """Atomic additions into dW: another result every time."""
    x, dy, weight, bias = make(rows, 1024, BF16)
    _, mean, rstd = ops.layer_norm_forward(x, [1024], weight, bias)
    for op in BACKWARDS:
        first = op(dy, x, [1024], mean, rstd, weight, bias, ALL)
        for _ in range(20):
            again = op(dy, x, [1024], mean, rstd, weight, bias, ALL)
            assert all(torch.equal(a, b) for a, b in zip(first, again))


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_sixteen_bit_input_with_float_weights(dtype):
    """Refused, or the weights were read as 16-bit numbers."""
    for rows, cols in ((33, 1000), (512, 256), (9, 50001)):
        expect_right(*make(rows, cols, dtype, F32))


def test_last_columns_of_a_width_that_does_not_divide():
    """A division that rounded down left columns out."""
    for cols in (1600, 1601, 63, 65, 4095):
        x, dy, weight, bias = make(50, cols)
        _, _, dbias = ops.layer_norm_backward(
            torch.ones_like(x),
            x,
            [cols],
            *ops.layer_norm_forward(x, [cols])[1:],
            weight,
            bias,
            ALL,
        )
        assert torch.equal(dbias, torch.full((cols,), 50.0))
        expect_right(x, dy, weight, bias)


def test_input_that_needs_no_gradient():
    """Was an error. Right: dW and dB alone."""
    x, dy, weight, bias = make(64, 300)
    weight.requires_grad_()
    bias.requires_grad_()
    ops.layer_norm(x, [300], weight, bias).backward(dy)
    assert x.grad is None
    assert torch.allclose(bias.grad, dy.sum(0), rtol=1e-4, atol=1e-4)
    assert weight.grad.abs().max() > 0


def test_gradient_of_a_sum_is_zero_and_others_are_not():
    """"Gradients are zero", with y.sum() as the loss. They are; with random ones they are not."""
    x = randn(8, 96)
    _, mean, rstd = ops.layer_norm_forward(x, [96])
    of_sum = ops.layer_norm_backward(torch.ones_like(x), x, [96], mean, rstd, None, None, ALL)[0]
    of_random = ops.layer_norm_backward(randn(8, 96), x, [96], mean, rstd, None, None, ALL)[0]
    assert of_sum.abs().max() < 1e-5
    assert of_random.abs().mean() > 0.3
