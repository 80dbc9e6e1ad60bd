"""Values, shapes, dtypes and strides of the operators, without autograd."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch
from conftest import LIBRARY
from reference import DEVICE, assert_close, backward, forward, inputs, ops, same_bits

BACKWARDS = [
    ops.layer_norm_backward,
    ops.layer_norm_backward_fused,
    ops.layer_norm_backward_two_kernel,
]
ALL = [True, True, True]
SOURCES = ("table", "near", "default")
# One row, one column, both; rows narrower and wider than a vector, tails, a row of several chunks.
SHAPES = [(1, 1), (7, 1), (1, 31), (5, 16), (3, 769), (33, 97), (2, 3, 4, 40), (3, 5000)]
DTYPES = [  # of input and of weights
    (torch.float32, torch.float32),
    (torch.float64, torch.float64),
    (torch.bfloat16, torch.bfloat16),
    (torch.bfloat16, torch.float32),
    (torch.float16, torch.float16),
    (torch.float16, torch.float32),
]


@pytest.mark.parametrize("dtype, weight_dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_forward_and_backward(shape, dtype, weight_dtype):
    x, weight, bias, dy, normalized = inputs(shape, dtype, 1, weight_dtype)
    y, mean, rstd = ops.layer_norm_forward(x, normalized, weight, bias, 1e-5)
    expected_y, expected_mean, expected_rstd = forward(x, 1, weight, bias)
    accumulate = torch.float64 if dtype == torch.float64 else torch.float32
    assert y.dtype == dtype and mean.dtype == rstd.dtype == accumulate
    assert y.is_contiguous()
    assert_close(y, expected_y, "y")
    assert_close(mean, expected_mean, "mean")
    assert_close(rstd, expected_rstd, "rstd", factor=4)  # of a square root of a sum of squares
    assert same_bits(ops.layer_norm(x, normalized, weight, bias, 1e-5), y)

    expected = backward(dy, x, 1, weight)
    for op in BACKWARDS:
        grads = op(dy, x, normalized, mean, rstd, weight, bias, ALL)
        for name, grad, like, want in zip(["dX", "dW", "dB"], grads, [x, weight, bias], expected):
            assert grad.dtype == like.dtype and grad.is_contiguous()
            # N = 1: dX and dW are exactly 0, and so is their scale.
            if shape[-1] == 1 and name != "dB":
                assert torch.count_nonzero(grad) == 0
            else:
                assert_close(grad, want, f"{op} {name}", factor=4)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_normalized_shape_of_several_dimensions(ndim):
    x, weight, bias, dy, normalized = inputs((2, 3, 4, 5), torch.float64, ndim)
    y, mean, rstd = ops.layer_norm_forward(x, normalized, weight, bias)
    assert mean.shape == rstd.shape == torch.Size([2, 3, 4, 5][: 4 - ndim] + [1] * ndim)
    assert_close(y, forward(x, ndim, weight, bias)[0])
    grads = ops.layer_norm_backward(dy, x, normalized, mean, rstd, weight, bias, ALL)
    for grad, want in zip(grads, backward(dy, x, ndim, weight)):
        assert_close(grad, want, factor=4)


def test_whole_input_is_one_row():
    x, weight, bias, _, normalized = inputs((3, 4), torch.float64, 2)
    y, mean, _ = ops.layer_norm_forward(x, normalized, weight, bias)
    assert mean.shape == (1, 1)
    assert_close(y, forward(x, 2, weight, bias)[0])


@pytest.mark.parametrize("has_weight", [True, False])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("mask", [[bool(i & 4), bool(i & 2), bool(i & 1)] for i in range(8)])
@pytest.mark.parametrize("op", BACKWARDS)
def test_masks_and_absent_parameters(op, mask, has_weight, has_bias):
    x, weight, bias, dy, normalized = inputs((9, 33), torch.float32, 1, None, has_weight, has_bias)
    y, mean, rstd = ops.layer_norm_forward(x, normalized, weight, bias)
    assert_close(y, forward(x, 1, weight, bias)[0])
    grads = op(dy, x, normalized, mean, rstd, weight, bias, mask)
    wanted = [mask[0], mask[1] and has_weight, mask[2] and has_bias]
    for grad, want, expected in zip(grads, wanted, backward(dy, x, 1, weight)):
        if want:
            assert_close(grad, expected, factor=4)
        else:
            assert grad is None


def variants_of(x):
    """The same values, laid out in every way that a caller may come with."""
    rows, cols = x.shape
    wide = torch.full((rows, cols + 5), torch.nan, dtype=x.dtype)
    wide[:, 2 : 2 + cols] = x
    padded = torch.full((rows * cols + 1,), torch.nan, dtype=x.dtype)
    padded[1:] = x.flatten()
    steps = torch.full((rows, 2 * cols), torch.nan, dtype=x.dtype)
    steps[:, ::2] = x
    return {
        "row-strided": wide[:, 2 : 2 + cols],
        "misaligned": padded[1:].view(rows, cols),
        "transposed": x.t().contiguous().t(),
        "column-strided": steps[:, ::2],
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", ["row-strided", "misaligned", "transposed", "column-strided"])
def test_strided_input_and_gradient(layout, dtype):
    x, weight, bias, dy, normalized = inputs((12, 80), dtype)
    y, mean, rstd = ops.layer_norm_forward(x, normalized, weight, bias)
    strided_x, strided_dy = variants_of(x)[layout], variants_of(dy)[layout]
    assert torch.equal(strided_x, x) and torch.equal(strided_dy, dy)
    strided_y, strided_mean, _ = ops.layer_norm_forward(strided_x, normalized, weight, bias)
    assert strided_y.is_contiguous()
    assert_close(strided_y, forward(x, 1, weight, bias)[0])
    assert_close(strided_mean, forward(x)[1])
    for op in BACKWARDS:
        grads = op(strided_dy, strided_x, normalized, mean, rstd, weight, bias, ALL)
        for grad, want in zip(grads, backward(dy, x, 1, weight)):
            assert grad.is_contiguous()
            assert_close(grad, want, factor=4)


def copies_in(call):
    """How often the call made a contiguous copy of something."""
    with torch.profiler.profile() as profile:
        call()
    return sum(e.count for e in profile.key_averages() if e.key == "aten::clone")


@pytest.mark.parametrize(
    "layout, copies",
    [("row-strided", 0), ("misaligned", 0), ("transposed", 1), ("column-strided", 1)],
)
def test_only_rows_that_are_not_contiguous_are_copied(layout, copies):
    x, weight, bias, dy, normalized = inputs((12, 80))
    _, mean, rstd = ops.layer_norm_forward(x, normalized, weight, bias)
    strided_x, strided_dy = variants_of(x)[layout], variants_of(dy)[layout]
    assert copies_in(lambda: ops.layer_norm(strided_x, normalized, weight, bias)) == copies
    assert 2 * copies == copies_in(
        lambda: ops.layer_norm_backward(
            strided_dy, strided_x, normalized, mean, rstd, weight, bias, ALL
        )
    )


def test_rows_that_overlap():
    x = torch.randn(600, dtype=torch.float64).as_strided((400, 200), (1, 1))
    assert copies_in(lambda: ops.layer_norm(x, [200])) == 0
    assert_close(ops.layer_norm(x, [200]), forward(x)[0])


def test_leading_dimensions_that_do_not_collapse():
    big = torch.randn(4, 6, 32, dtype=torch.float64)
    for x in (big[:, :3], big.transpose(0, 1), big[::2, ::3], big[1:2, ::2], big[:, 2:3]):
        assert_close(ops.layer_norm(x, [32]), forward(x)[0])


def test_expanded_gradient_and_input():
    x, weight, bias, _, normalized = inputs((6, 24), torch.float64)
    _, mean, rstd = ops.layer_norm_forward(x, normalized, weight, bias)
    for dy in (torch.randn(1, 24).double().expand(6, 24), torch.tensor(0.5).double().expand(6, 24)):
        grads = ops.layer_norm_backward(dy, x, normalized, mean, rstd, weight, bias, ALL)
        expected = backward(dy, x, 1, weight)
        for grad, want in zip(grads[1:], expected[1:]):
            assert_close(grad, want, factor=4)
        assert torch.allclose(grads[0], expected[0], rtol=0, atol=1e-14)
    row = torch.randn(24, dtype=torch.float64)
    assert_close(ops.layer_norm(row.expand(5, 24), [24]), forward(row.expand(5, 24))[0])


def test_strided_parameters_and_statistics():
    x, _, _, dy, normalized = inputs((6, 24), torch.float64)
    weight = torch.randn(48, dtype=torch.float64)[::2]
    bias = torch.randn(24, 2, dtype=torch.float64)[:, 1]
    y, mean, rstd = ops.layer_norm_forward(x, normalized, weight, bias)
    assert_close(y, forward(x, 1, weight, bias)[0])
    both = torch.cat([mean, rstd], 1)
    grads = ops.layer_norm_backward(
        dy, x, normalized, both[:, 0], both[:, 1], weight, bias, ALL
    )
    for grad, want in zip(grads, backward(dy, x, 1, weight)):
        assert_close(grad, want, factor=4)


def test_statistics_in_the_dtype_of_input():
    x, weight, bias, dy, normalized = inputs((8, 64), torch.bfloat16)
    _, mean, rstd = ops.layer_norm_forward(x, normalized, weight, bias)
    rounded = [mean.bfloat16(), rstd.bfloat16()]
    grads = ops.layer_norm_backward(dy, x, normalized, *rounded, weight, bias, ALL)
    widened = [t.float() for t in rounded]
    same = ops.layer_norm_backward(dy, x, normalized, *widened, weight, bias, ALL)
    for grad, want in zip(grads, same):
        assert same_bits(grad, want)


def test_backward_feeds_on_aten_forward_and_the_other_way_round():
    x, weight, bias, dy, normalized = inputs((8, 64))
    _, mean, rstd = torch.ops.aten.native_layer_norm(x, normalized, weight, bias, 1e-5)
    grads = ops.layer_norm_backward(dy, x, normalized, mean, rstd, weight, bias, ALL)
    for grad, want in zip(grads, backward(dy, x, 1, weight)):
        assert_close(grad, want, factor=4)
    _, mean, rstd = ops.layer_norm_forward(x, normalized, weight, bias)
    theirs = torch.ops.aten.native_layer_norm_backward(
        dy, x, normalized, mean, rstd, weight, bias, ALL
    )
    for grad, want in zip(grads, theirs):
        assert torch.allclose(grad, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0), (2, 0, 4), (0, 2, 4)], ids=str)
def test_empty(shape):
    x, weight, bias, dy, normalized = inputs(shape)
    results = ops.layer_norm_forward(x, normalized, weight, bias)
    # On every device as aten answers on the CPU.
    dy_cpu, x_cpu, weight_cpu, bias_cpu = (t.cpu() for t in (dy, x, weight, bias))
    expected = torch.ops.aten.native_layer_norm(x_cpu, normalized, weight_cpu, bias_cpu, 1e-5)
    for result, want in zip(results, expected):
        assert result.shape == want.shape and result.device == DEVICE
        assert torch.equal(result.cpu().nan_to_num(), want.nan_to_num())
    for op in BACKWARDS:
        grads = op(dy, x, normalized, *results[1:], weight, bias, ALL)
        want = torch.ops.aten.native_layer_norm_backward(
            dy_cpu, x_cpu, normalized, *expected[1:], weight_cpu, bias_cpu, ALL
        )
        for grad, w in zip(grads, want):
            assert grad.shape == w.shape and torch.equal(grad.cpu(), w)


def test_eps_is_taken_as_aten_takes_it():
    x, weight, bias, _, normalized = inputs((4, 48))
    for eps in (0.0, 1e-12, 1.0, 1e10, -1.0, float("inf"), float("nan")):
        ours = ops.layer_norm(x, normalized, weight, bias, eps)
        theirs = torch.nn.functional.layer_norm(x, normalized, weight, bias, eps)
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_bad_rows_stay_alone():
    x, weight, bias, _, normalized = inputs((6, 40))
    x[1, 3] = torch.inf
    x[4, 7] = torch.nan
    y = ops.layer_norm(x, normalized, weight, bias)
    good = [0, 2, 3, 5]
    assert y[[1, 4]].isnan().all()
    assert_close(y[good], forward(x[good], 1, weight, bias)[0])


def test_two_runs_agree_bit_for_bit():
    x, weight, bias, dy, normalized = inputs((257, 129))
    _, mean, rstd = ops.layer_norm_forward(x, normalized, weight, bias)
    for op in BACKWARDS:
        first = op(dy, x, normalized, mean, rstd, weight, bias, ALL)
        again = op(dy, x, normalized, mean, rstd, weight, bias, ALL)
        assert all(same_bits(a, b) for a, b in zip(first, again))


def layouts(shape):
    yield torch.randn(shape)
    yield torch.randn(shape).transpose(0, 1).contiguous().transpose(0, 1)
    yield torch.randn(shape)[..., ::2]
    yield torch.randn(shape).to(torch.bfloat16)[:, 1:]


@pytest.mark.parametrize("device", ["meta", "fake"])
def test_meta_and_fake_results_look_like_real_ones(device):
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()

    def convert(t):
        return t.to("meta") if device == "meta" else mode.from_tensor(t)

    for x in layouts((4, 6, 8)):
        normalized = list(x.shape[-1:])
        weight, bias = torch.randn(normalized), torch.randn(normalized)
        real = ops.layer_norm_forward(x, normalized, weight, bias)
        shadow = ops.layer_norm_forward(convert(x), normalized, convert(weight), convert(bias))
        real += ops.layer_norm_backward(x, x, normalized, *real[1:], weight, bias, ALL)
        args = [convert(t) for t in (x, real[1], real[2], weight, bias)]
        shadow += ops.layer_norm_backward(args[0], args[0], normalized, *args[1:], ALL)
        for r, s in zip(real, shadow, strict=True):
            assert (r.shape, r.stride(), r.dtype) == (s.shape, s.stride(), s.dtype)
            assert s.device == (torch.device("meta") if device == "meta" else DEVICE)


def test_selected_config():
    x, weight, bias, _, normalized = inputs((64, 256))
    kind = "cpu" if DEVICE.type == "cpu" else "gpu"
    for op in ("forward", "backward", "backward_fused", "backward_two_kernel"):
        text = ops.selected_config(op, x, normalized, weight, bias)
        config, source = text.split("  source=")
        assert config.startswith(f"{kind}_{op.split('_')[0]}_") and source in SOURCES
    if kind == "cpu":
        assert ops.selected_config("backward_fused", x, normalized).startswith("cpu_backward_row:")
    assert ops.selected_config("forward", x[:0], normalized) == "none"
    assert ops.selected_config("backward", x, normalized, weight, bias, [False] * 3) == "none"


def test_forced_config_reaches_backward_threads():
    """HIPNORM_FORCE_CONFIG is read once, hence a process of its own."""
    program = textwrap.dedent(
        """
        import sys, threading, torch
        torch.ops.load_library(sys.argv[1])
        ops = torch.ops.hipnorm
        x = torch.randn(64, 100, requires_grad=True)
        print(ops.selected_config("backward", x, [100]))
        print(ops.selected_config("backward_fused", x, [100]))
        y = ops.layer_norm(x, [100])
        thread = threading.Thread(target=lambda: y.sum().backward())
        thread.start(); thread.join()
        print("grad", x.grad is not None)
        try:
            ops.layer_norm_forward(x.double(), [100])
        except ValueError as error:
            print("refused", error)
        """
    )

    def run(force):
        environment = dict(os.environ, HIPNORM_FORCE_CONFIG=force)
        return subprocess.run(
            [sys.executable, "-c", program, LIBRARY],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    good = run("backward=cpu_backward_sums_first")
    lines = good.stdout.splitlines()
    assert lines[0].startswith("cpu_backward_sums_first:") and lines[0].endswith("source=forced")
    assert lines[1].startswith("cpu_backward_row:") and lines[1].endswith("source=default")
    assert lines[2:] == ["grad True"], good.stderr
    # One that cannot run is refused at the call, in whatever thread.
    bad = run("forward=cpu_backward_row")
    assert "cpu_backward_row" in bad.stderr and "ValueError" in bad.stderr


def test_a_table_of_ones_own_decides(tmp_path):
    """HIPNORM_CONFIG_FILE is read once, hence a process of its own; on the CPU, whatever is here."""
    config = "cpu_forward_split:vec_bytes=16,split=1,stream=0"  # nobody's default for these rows
    table = tmp_path / "mine.csv"
    table.write_text(
        "# hipnorm configs 1 arch=cpu-baseline\n"
        "op,x,weight,bias,cols,rows,config,time_us,default_us,compute_units,sources\n"
        f'forward,f32,f32,1,256,64,"{config}",1,1,1,-\n'
    )
    program = textwrap.dedent(
        """
        import sys, torch
        torch.ops.load_library(sys.argv[1])
        weight, bias = torch.randn(256), torch.randn(256)
        for rows, op in ((64, "forward"), (65, "forward"), (64, "backward")):
            x = torch.randn(rows, 256)
            print(torch.ops.hipnorm.selected_config(op, x, [256], weight, bias))
        """
    )
    result = subprocess.run(
        [sys.executable, "-c", program, LIBRARY],
        env=dict(os.environ, HIPNORM_CONFIG_FILE=str(table), HIPNORM_CPU_CAPABILITY="baseline"),
        capture_output=True,
        text=True,
        timeout=120,
    )
    exact, near, other = result.stdout.splitlines()
    assert exact == f"{config}  source=table", result.stderr
    assert near == f"{config}  source=near"
    assert other.startswith("cpu_backward_") and other.endswith("source=default")


def test_table_rows_that_cannot_be_read_are_warned_of(tmp_path):
    table = tmp_path / "mine.csv"
    table.write_text(
        "# hipnorm configs 1 arch=cpu-avx2\n"
        "op,x,weight,bias,cols,rows,config,time_us,default_us,compute_units,sources\n"
        'forward,f32,none,0,100,7,"no_such_variant:parts=1",1,1,1,-\n'
    )
    program = textwrap.dedent(
        """
        import sys, torch
        torch.ops.load_library(sys.argv[1])
        for _ in range(2):
            torch.ops.hipnorm.layer_norm(torch.randn(7, 100), [100])
        """
    )
    result = subprocess.run(
        [sys.executable, "-c", program, LIBRARY],
        env=dict(os.environ, HIPNORM_CONFIG_FILE=str(table)),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr.count(f"{table}:3: ") == 1 and "no_such_variant" in result.stderr


def test_library_refuses_another_torch(tmp_path):
    """A torch that claims to be 2.99, by a function put before torch's own."""
    source = tmp_path / "version.c"
    source.write_text(
        "unsigned long long aoti_torch_abi_version(void) { return (2ULL << 56) | (99ULL << 48); }\n"
    )
    shim = tmp_path / "version.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, source], check=True)
    program = (
        "import sys, torch; torch.ops.load_library(sys.argv[1]);"
        "torch.ops.hipnorm.layer_norm(torch.randn(2, 3), [3])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, LIBRARY],
        env=dict(os.environ, LD_PRELOAD=str(shim)),
        capture_output=True,
        text=True,
        timeout=120,
    )
    built_for = ".".join(torch.__version__.split(".")[:2])
    message = f"hipnorm was built for torch {built_for}, but runs in torch 2.99"
    assert result.returncode != 0
    assert result.stderr.count(message) == 2, result.stderr  # a warning on loading, then the error
