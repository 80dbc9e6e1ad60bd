"""Sizes: every width class up to 2^18 columns, up to ten million rows, more than 2^31 elements."""

import pytest
import torch
from cases import BACKWARDS, expect_exact_sums, expect_right, make, needs_memory
from reference import ops

# Around the powers of two, where one kernel or instance takes over from another, odd and even.
COLS = sorted(
    {1, 2, 3, 5, 8, 9, 31, 48, 80, 769, 1000, 1600, 3584, 5120, 11776, 40920, 103008}
    | {2**k + d for k in range(5, 18) for d in (-1, 0, 1)}
    | {196608, 262143, 262144}
)


@pytest.mark.parametrize("cols", COLS)
@pytest.mark.parametrize(
    "dtype, weight_dtype",
    [
        (torch.bfloat16, torch.bfloat16),
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float16),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
    ids=["bf16", "bf16-f32", "f16", "f32", "f64"],
)
def test_widths(cols, dtype, weight_dtype):
    rows = max(3, min(300, (1 << 21) // cols)) | 1
    x, dy, weight, bias = make(rows, cols, dtype, weight_dtype)
    if cols == 1:  # x̂ = 0: nothing to compare with
        y = ops.layer_norm(x, [1], weight, bias)
        assert torch.equal(y, bias.to(dtype).expand(rows, 1))
        return
    if cols < 16:  # two elements are ±1 apart from eps: keep them apart
        x += torch.arange(cols, dtype=dtype)
    expect_right(x, dy, weight, bias)


@pytest.mark.parametrize("cols", [4, 34, 770, 4098, 40922, 103008])
@pytest.mark.parametrize("rows", [1, 2, 131, 132, 133, 1025])
def test_column_sums_are_exact(rows, cols):
    for dtype in (torch.float32, torch.bfloat16):
        expect_exact_sums(rows, cols, dtype)


@pytest.mark.parametrize("rows, cols", [(10_000_000, 8), (9_999_991, 34), (4_000_001, 128)])
def test_many_rows(rows, cols):
    needs_memory(40)
    expect_exact_sums(rows, cols, torch.bfloat16)
    x, dy, weight, bias = make(rows, cols, torch.bfloat16, torch.float32)
    expect_right(x, dy, weight, bias)


@pytest.mark.parametrize("rows", [1, 3, 17])
def test_few_wide_rows(rows):
    for cols in (65536, 131073, 262144):
        expect_right(*make(rows, cols, torch.float32))


# 2^31 elements and 2^32 elements lie inside these, bytes beyond 2^33.
@pytest.mark.big
@pytest.mark.parametrize("rows, cols", [(65600, 32776), (262160, 16384), (41700, 103008)])
def test_more_than_2_to_the_31_elements(rows, cols):
    needs_memory(60)
    x, dy, weight, bias = make(rows, cols, torch.bfloat16)
    expect_right(x, dy, weight, bias)
    del x, dy
    torch.cuda.empty_cache()


@pytest.mark.big
def test_wide_rows_of_2_to_the_31_elements_are_exact():
    needs_memory(60)
    expect_exact_sums(20900, 103008, torch.bfloat16)


@pytest.mark.big
def test_rows_far_apart():
    """A row stride times the rows beyond 2^31 elements, of a tensor that is small by itself."""
    needs_memory(20)
    buffer = torch.empty(2300, 1_000_000, dtype=torch.bfloat16)
    x = buffer[:, 77 : 77 + 2048].normal_(-2.3, 0.5)
    dy = torch.randn(2300, 2048).bfloat16()
    weight, bias = torch.randn(2, 2048).bfloat16().unbind(0)
    expect_right(x, dy, weight, bias, backwards=BACKWARDS)
