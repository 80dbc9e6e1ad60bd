"""torch.func transforms, alone and nested, against the same transforms of the definition."""

import warnings

import pytest
import torch
from reference import layer_norm, ops
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

N = 6


@pytest.fixture(autouse=True)
def no_warning():
    """vmap warns where an operator has no rule; ours have one."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*performance drop.*")
        yield


def tensors(rows=4):
    x = torch.randn(rows, N, dtype=torch.float64) - 2
    return x, torch.randn(N, dtype=torch.float64), torch.randn(N, dtype=torch.float64)


def loss_of(op):
    def loss(x, weight=None, bias=None):
        return (op(x, [N], weight, bias) ** 2).sin().sum()

    return loss


ours, theirs = loss_of(ops.layer_norm), loss_of(layer_norm)


def close(a, b):
    if isinstance(a, tuple):
        return len(a) == len(b) and all(close(x, y) for x, y in zip(a, b))
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: grad(f, argnums=(0, 1, 2)),
        lambda f: jacrev(f, argnums=(0, 1, 2)),
        lambda f: jacfwd(f, argnums=(0, 1, 2)),
        lambda f: hessian(f, argnums=(0, 1, 2)),
        lambda f: jacrev(grad(f, argnums=(0, 1)), argnums=(0, 1)),
        lambda f: jacfwd(grad(f, argnums=(0, 1)), argnums=(0, 1)),
        lambda f: vmap(f, in_dims=(0, None, None)),
        lambda f: vmap(f, in_dims=(1, None, None)),
        lambda f: vmap(grad(f, argnums=(0, 1, 2)), in_dims=(0, None, None)),
        lambda f: vmap(grad(f), in_dims=(0, None, None)),
        lambda f: vmap(jacrev(grad(f)), in_dims=(0, None, None)),
        lambda f: grad(lambda *a: vmap(grad(f), in_dims=(0, None, None))(*a).sin().sum()),
    ],
    ids=[
        "grad",
        "jacrev",
        "jacfwd",
        "hessian",
        "jacrev-grad",
        "jacfwd-grad",
        "vmap",
        "vmap-of-dim-1",
        "vmap-grad-of-all",
        "vmap-grad-of-x",
        "vmap-jacrev-grad",
        "grad-vmap-grad",
    ],
)
def test_transform(transform, request):
    x, weight, bias = tensors()
    if "dim-1" in request.node.callspec.id:
        x = x.t().contiguous()
    assert close(transform(ours)(x, weight, bias), transform(theirs)(x, weight, bias))


def test_transforms_without_parameters():
    x, _, _ = tensors()
    for transform in (grad, jacrev, hessian, lambda f: vmap(grad(f))):
        assert close(transform(ours)(x), transform(theirs)(x))


def test_vjp_and_jvp():
    x, weight, bias = tensors()
    tangents = tuple(torch.randn_like(t) for t in (x, weight, bias))
    for op in (ours, lambda *a: ops.layer_norm_forward(a[0], [N], *a[1:])[0].sin().sum()):
        reference = theirs if op is ours else lambda *a: layer_norm(a[0], [N], *a[1:]).sin().sum()
        value, pull = vjp(op, x, weight, bias)
        expected, expected_pull = vjp(reference, x, weight, bias)
        assert close(value, expected)
        seed = torch.tensor(2.0, dtype=torch.float64)
        assert close(pull(seed), expected_pull(seed))
        assert close(
            jvp(op, (x, weight, bias), tangents), jvp(reference, (x, weight, bias), tangents)
        )


def test_jvp_of_some_inputs_only():
    x, weight, bias = tensors()
    for position in range(3):

        def call(f, t):
            arguments = [x, weight, bias]
            arguments[position] = t
            return f(*arguments)

        primal = (x, weight, bias)[position]
        tangent = torch.randn_like(primal)
        a = jvp(lambda t: call(ours, t), (primal,), (tangent,))
        assert close(a, jvp(lambda t: call(theirs, t), (primal,), (tangent,)))


def test_jvp_of_the_backward_operator_follows_the_statistics():
    """mean and rstd carry no tangent; theirs is derived from input's."""
    x, weight, bias = tensors()
    dy, tangent = torch.randn_like(x), torch.randn_like(x)
    _, mean, rstd = ops.layer_norm_forward(x, [N], weight, bias)

    def call(x):
        return ops.layer_norm_backward(dy, x, [N], mean, rstd, weight, bias, [True, True, True])

    def expected(x):
        y, pull = vjp(lambda *a: layer_norm(a[0], [N], *a[1:]), x, weight, bias)
        return pull(dy)

    assert close(jvp(call, (x,), (tangent,)), jvp(expected, (x,), (tangent,)))


def test_forward_over_reverse_without_functorch():
    import torch.autograd.forward_ad as fwd

    x, weight, bias = tensors()
    tangent = torch.randn_like(x)
    results = []
    for f in (ours, theirs):
        leaf = x.clone().requires_grad_()
        with fwd.dual_level():
            (g,) = torch.autograd.grad(f(fwd.make_dual(leaf, tangent), weight, bias), leaf)
            results.append(fwd.unpack_dual(g).tangent)
    assert close(*results)


def test_reverse_over_forward_without_functorch():
    """The tangent of y is a function of x, whose gradient has to come through the statistics."""
    import torch.autograd.forward_ad as fwd

    x, weight, bias = tensors()
    tangents = [torch.randn_like(t) for t in (x, weight, bias)]
    results = []
    for f in (ours, theirs):
        leaves = [t.clone().requires_grad_() for t in (x, weight, bias)]
        with fwd.dual_level():
            y = f(*(fwd.make_dual(leaf, t) for leaf, t in zip(leaves, tangents)))
            primal, tangent = fwd.unpack_dual(y)
            results.append(torch.autograd.grad(primal + tangent.sin(), leaves))
    assert close(*results)


def test_tangents_look_like_their_results():
    """Any input alone may have one, of zeros too, and sizes may be 0."""
    import torch.autograd.forward_ad as fwd

    x, weight, bias = torch.randn(3, 8).bfloat16(), torch.randn(8), torch.randn(8)
    zeros = torch._efficientzerotensor((3, 8), dtype=torch.bfloat16)
    with fwd.dual_level(), torch.no_grad():

        def check(x, weight=None, bias=None):
            normalized = x.shape[1:]
            y, mean, rstd = ops.layer_norm_forward(x, normalized, weight, bias)
            grads = ops.layer_norm_backward(
                x, x, normalized, mean, rstd, weight, bias, [True, True, True]
            )
            for result in (y, mean, rstd, *grads):
                primal, tangent = fwd.unpack_dual(result) if result is not None else (None, None)
                if tangent is not None:
                    assert (tangent.dtype, tangent.shape) == (primal.dtype, primal.shape)
                    assert tangent.stride() == primal.stride()
            return fwd.unpack_dual(y).tangent

        assert check(fwd.make_dual(x, x), weight, bias).abs().max() > 0
        assert torch.count_nonzero(check(fwd.make_dual(x, zeros), weight, bias)) == 0
        assert check(x, fwd.make_dual(weight, bias), None).abs().max() > 0
        assert torch.equal(check(x, None, fwd.make_dual(bias, bias))[1], bias.bfloat16())
        assert check(fwd.make_dual(x.t().contiguous().t(), x)).is_contiguous()
        assert check(fwd.make_dual(x[:1], x[:1]).expand(3, 8)).is_contiguous()
        for shape in ((0, 8), (3, 0)):
            empty = torch.randn(shape)
            assert check(fwd.make_dual(empty, empty)).shape == shape


# Ordinary; constant; variance beyond f32; a mean of 10^5 deviations (of 100 in bfloat16, which has
# 8 bits); a row that is NaN.
ORDINARY, CONSTANT, HUGE, FAR, BAD = range(5)


def special_rows(dtype=torch.float32):
    x = torch.randn(5, 64)
    x[CONSTANT] = 3.25
    x[HUGE] = 3e38
    x[HUGE, ::4] = -3e38  # from the mean, 1.5e38, farther than f32 reaches
    x[FAR] += 1e5 if dtype == torch.float32 else 100
    x[BAD, 7] = torch.inf
    return x.to(dtype), torch.randn(64), torch.randn(64)


@pytest.mark.parametrize("eps", [0.0, 1e-5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_jvp_of_special_rows(dtype, eps):
    x, weight, bias = special_rows(dtype)
    primals = (x, weight, bias)
    tangents = tuple(torch.randn(t.shape).to(t.dtype) for t in primals)

    def call(x, weight, bias):
        return ops.layer_norm_forward(x, [64], weight, bias, eps)

    results, result_tangents = jvp(call, primals, tangents)
    for result, plain in zip(results, call(*primals)):
        assert torch.equal(result.nan_to_num(), plain.nan_to_num())  # the kernel's own
    y, y_tangent = jvp(lambda *a: ops.layer_norm(a[0], [64], *a[1:], eps), primals, tangents)
    assert torch.equal(y.nan_to_num(), results[0].nan_to_num())
    assert torch.equal(y_tangent.nan_to_num(), result_tangents[0].nan_to_num())

    wide, wide_tangents = ([t.double() for t in ts] for ts in (primals, tangents))
    _, (expected, mean_t, rstd_t) = jvp(definition_with_statistics(eps), tuple(wide), tuple(wide_tangents))
    assert y_tangent[BAD].isnan().all()
    constant = [HUGE] if eps else [HUGE, CONSTANT]
    for row in constant:
        assert torch.equal(y_tangent[row], tangents[2].to(dtype))
        assert result_tangents[2][row] == 0
    rows = [ORDINARY, CONSTANT] if eps else [ORDINARY]
    unit = 2.0**-7 if dtype == torch.bfloat16 else 1e-6  # of rows whose elements are about 1
    for row in rows + [FAR]:
        # The backward's x̂ is off by the rounding of the saved mean: 10^5 · 2^-24 = 0.006.
        limit = unit * expected[row].abs().max() + (0.02 if row == FAR else 0)
        assert (y_tangent[row] - expected[row]).abs().max() <= limit, row
        assert torch.allclose(result_tangents[1][row].double(), mean_t[row], rtol=1e-4, atol=1e-6)
        assert torch.allclose(result_tangents[2][row].double(), rstd_t[row], rtol=1e-3, atol=1e-6)


def definition_with_statistics(eps):
    def call(x, weight, bias):
        mean = x.mean(-1, keepdim=True)
        rstd = ((x - mean).square().mean(-1, keepdim=True) + eps).rsqrt()
        return layer_norm(x, [64], weight, bias, eps), mean, rstd

    return call


@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_second_derivatives_of_special_rows(eps):
    """jvp of the backward, and double backward: nothing arrives at rows whose gradient is 0."""
    x, weight, bias = special_rows()
    _, mean, rstd = ops.layer_norm_forward(x, [64], weight, bias, eps)
    dy = torch.randn(5, 64)
    tangents = (torch.randn(5, 64), torch.randn(5, 64), torch.randn(64))
    zero = [HUGE] if eps else [HUGE, CONSTANT]
    good = [ORDINARY, CONSTANT, HUGE, FAR]

    def call(rows):
        def backward(dy, x, weight):
            return ops.layer_norm_backward(
                dy, x, [64], mean[rows], rstd[rows], weight, bias, [True, True, True]
            )

        return backward

    results, forward_mode = jvp(
        call(good), (dy[good], x[good], weight), (tangents[0][good], tangents[1][good], tangents[2])
    )
    for result, plain in zip(results, call(good)(dy[good], x[good], weight)):
        assert torch.equal(result, plain)
    assert all(t.isfinite().all() for t in forward_mode)
    assert torch.count_nonzero(forward_mode[0][zero]) == 0

    arriving = (torch.randn(5, 64), torch.randn(64), torch.randn(64))
    d_dy, d_x, d_weight = ops._layer_norm_double_backward(
        *arriving, dy, x, [64], mean, rstd, weight, [True, True, True]
    )
    for row in zero:
        assert torch.equal(d_dy[row], arriving[2])
        assert torch.count_nonzero(d_x[row]) == 0
    assert d_dy[good].isfinite().all() and d_x[good].isfinite().all()
    assert d_x[BAD].isnan().all() and d_weight.isnan().all()


@pytest.mark.parametrize("in_dims", [(0, 0, 0), (None, 0, None), (None, None, 0), (1, 0, None)])
def test_vmap_over_parameters(in_dims):
    x, weight, bias = tensors()
    batch = 3
    stack = [
        t if d is None else torch.stack([t + i for i in range(batch)], d)
        for t, d in zip((x, weight, bias), in_dims)
    ]
    for make in (lambda f: f, lambda f: grad(f, argnums=(0, 1, 2)), lambda f: grad(f)):
        call, expected = (vmap(make(f), in_dims=in_dims) for f in (ours, theirs))
        assert close(call(*stack), expected(*stack))


def test_vmap_over_parameters_in_low_precision_rounds_once():
    x = torch.randn(4, N).bfloat16()
    weight, bias = torch.randn(3, N), torch.randn(3, N)
    y = vmap(lambda w, b: ops.layer_norm(x, [N], w, b))(weight, bias)
    assert y.dtype == torch.bfloat16
    for i in range(3):
        assert torch.equal(y[i], ops.layer_norm(x, [N], weight[i], bias[i]))


def test_vmap_over_an_empty_batch():
    x = torch.randn(0, 4, N, dtype=torch.float64)
    _, weight, bias = tensors()
    for make in (
        lambda f: grad(f, argnums=(0, 1, 2)),
        lambda f: grad(f),
        lambda f: jacrev(grad(f, argnums=(0, 1)), argnums=(0, 1)),
    ):
        call, expected = (vmap(make(f), in_dims=(0, None, None)) for f in (ours, theirs))
        assert close(call(x, weight, bias), expected(x, weight, bias))
    stack = weight.expand(0, N)
    for f in (ours, theirs):
        result = vmap(grad(f, argnums=(0, 1)), in_dims=(None, 0, None))(x[:0, 0], stack, bias)
        assert [r.shape for r in result] == [(0, 0, N), (0, N)]
    # Gradients flow through it: of nothing, but connected.
    leaf = x.clone().requires_grad_()
    vmap(grad(ours, argnums=1), in_dims=(0, None, None))(leaf, weight, bias).sum().backward()
    assert leaf.grad.shape == leaf.shape


def test_vmap_twice():
    x = torch.randn(2, 3, 4, N, dtype=torch.float64)
    _, weight, bias = tensors()
    for make in (lambda f: f, lambda f: grad(f, argnums=(0, 1))):
        results = [
            vmap(vmap(make(f), (1, None, None)), (0, None, None))(x, weight, bias)
            for f in (ours, theirs)
        ]
        assert close(*results)


def test_vmap_gives_statistics_and_a_single_call():
    x = torch.randn(3, 4, N)
    y, mean, rstd = vmap(lambda x: ops.layer_norm_forward(x, [N]))(x)
    want = ops.layer_norm_forward(x, [N])
    assert all(torch.equal(a, b) for a, b in zip((y, mean, rstd), want))
    with torch.profiler.profile() as profile:
        vmap(lambda x: ops.layer_norm(x, [N]))(x)
    # On a GPU the kernels are events, too.
    events = {e.key: e.count for e in profile.key_averages() if e.key.startswith("hipnorm::")}
    assert events == {"hipnorm::layer_norm": 1, "hipnorm::layer_norm_forward": 1}


def test_third_derivative_raises_at_every_level():
    x, weight, bias = tensors()

    def second(f):
        return lambda x: grad(lambda x: grad(f)(x, weight, bias).sin().sum())(x).sin().sum()

    message = "differentiable twice, but a third derivative"
    with pytest.raises(RuntimeError, match=message):
        grad(second(ours))(x)
    with pytest.raises(RuntimeError, match=message):
        jvp(second(ours), (x,), (x,))
    with pytest.raises(RuntimeError, match=message):
        jacfwd(jacfwd(jacfwd(ours)))(x)
    leaf = x.clone().requires_grad_()
    with pytest.raises(RuntimeError, match=message):
        second(ours)(leaf).backward()
    with pytest.raises(RuntimeError, match=message):
        grad(lambda x: vmap(lambda x: second(ours)(x))(x).sum())(x)
