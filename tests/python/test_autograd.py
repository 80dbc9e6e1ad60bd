"""First, second and third derivatives; what is saved; modes in which nothing is recorded."""

import itertools
import threading

import pytest
import torch
import torch.nn.functional as F
from reference import inputs, ops, same_bits
from torch.autograd import gradcheck, gradgradcheck

BACKWARDS = [
    ops.layer_norm_backward,
    ops.layer_norm_backward_fused,
    ops.layer_norm_backward_two_kernel,
]
BOOLS = [True, False]
PRESENCE = list(itertools.product(BOOLS, BOOLS))


def double_inputs(shape=(3, 5), ndim=1, has_weight=True, has_bias=True):
    x, weight, bias, dy, normalized = inputs(shape, torch.float64, ndim, None, has_weight, has_bias)
    return x, weight, bias, dy, normalized


def differentiable(*tensors):
    return [None if t is None else t.detach().requires_grad_() for t in tensors]


@pytest.mark.parametrize("has_weight, has_bias", PRESENCE)
@pytest.mark.parametrize("shape, ndim", [((3, 5), 1), ((2, 2, 3), 2), ((4,), 1)])
@pytest.mark.parametrize("op", [ops.layer_norm, lambda *a: ops.layer_norm_forward(*a)[0]])
def test_gradcheck_of_forward(op, shape, ndim, has_weight, has_bias):
    x, weight, bias, _, normalized = double_inputs(shape, ndim, has_weight, has_bias)
    x, weight, bias = differentiable(x, weight, bias)

    def call(*args):
        args = list(args)
        return op(
            args.pop(0),
            normalized,
            args.pop(0) if has_weight else None,
            args.pop(0) if has_bias else None,
        )

    args = [t for t in (x, weight, bias) if t is not None]
    assert gradcheck(call, args, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(call, args, check_batched_grad=True, check_fwd_over_rev=True)


@pytest.mark.parametrize("needs", [n for n in itertools.product(BOOLS, repeat=3) if any(n)])
def test_gradients_only_where_required(needs):
    x, weight, bias, dy, normalized = double_inputs((6, 9))
    leaves = [t.requires_grad_(need) for t, need in zip((x, weight, bias), needs)]
    ops.layer_norm(leaves[0], normalized, *leaves[1:]).backward(dy)
    ours = [t.grad for t in leaves]
    for t in leaves:
        t.grad = None
    F.layer_norm(leaves[0], normalized, *leaves[1:]).backward(dy)
    for mine, leaf, need in zip(ours, leaves, needs):
        assert (mine is not None) == need
        assert not need or torch.allclose(mine, leaf.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("eps", [0.0, 1e10, -1.0, float("inf"), float("nan")])
def test_gradients_follow_any_eps(eps):
    """rstd is 0 where eps is infinite and NaN without a real root: so are dX and dW; dB is not."""
    x, weight, bias, dy, normalized = inputs((4, 48))
    leaves = differentiable(x, weight, bias)
    grads, expected = (
        torch.autograd.grad(op(leaves[0], normalized, *leaves[1:], eps), leaves, dy)
        for op in (ops.layer_norm, F.layer_norm)
    )
    for grad, want in zip(grads, expected):
        assert torch.allclose(grad, want, rtol=1e-4, atol=1e-4, equal_nan=True)
    assert torch.count_nonzero(grads[0]) == 0 or eps != float("inf")
    assert grads[0].isnan().all() == (not eps >= 0)


@pytest.mark.parametrize("has_weight, has_bias", PRESENCE)
@pytest.mark.parametrize("mask", [m for m in itertools.product(BOOLS, repeat=3) if any(m)])
def test_gradcheck_of_backward(mask, has_weight, has_bias):
    """The operator's mean and rstd are functions of input, so the check computes them from it."""
    wanted = [mask[0], mask[1] and has_weight, mask[2] and has_bias]
    if not any(wanted):
        return
    x, weight, bias, dy, normalized = double_inputs((3, 4), 1, has_weight, has_bias)
    for op in BACKWARDS:

        def call(dy, x, weight=None):
            _, mean, rstd = ops.layer_norm_forward(x.detach(), normalized, weight, bias)
            grads = op(
                dy, x, normalized, mean.detach(), rstd.detach(), weight, bias, list(mask)
            )
            return tuple(g for g, want in zip(grads, wanted) if want)

        args = [t for t in differentiable(dy, x, weight) if t is not None]
        # dB alone does not depend on input or weight, and dW not on weight.
        assert gradcheck(call, args, check_batched_grad=True, check_forward_ad=True)


@pytest.mark.parametrize("needs", [n for n in itertools.product(BOOLS, repeat=3) if any(n)])
def test_double_backward_equals_aten_for_every_subset(needs):
    """Gradients of dX, dW, dB: some of them only; inputs that require grad: some of them only."""

    def second(op, used):
        x, weight, bias, dy, normalized = (
            t.clone() if isinstance(t, torch.Tensor) else t for t in data
        )
        leaves = [t.requires_grad_(need) for t, need in zip((dy, x, weight), needs)]
        bias.requires_grad_()
        first = torch.autograd.grad(
            op(x, normalized, weight, bias),
            [t for t in (x, weight, bias) if t.requires_grad],
            dy,
            create_graph=True,
        )
        chosen = [g for g, use in zip(first, used) if use and g.requires_grad]
        if not chosen:
            return []
        loss = sum((g * g.detach().cos()).sum() for g in chosen)
        wrt = [t for t in leaves if t.requires_grad]
        return torch.autograd.grad(loss, wrt, allow_unused=True)

    data = double_inputs((4, 6))
    for used in itertools.product(BOOLS, repeat=3):
        ours, theirs = second(ops.layer_norm, used), second(F.layer_norm, used)
        for a, b in zip(ours, theirs, strict=True):
            a = torch.zeros(()) if a is None else a
            b = torch.zeros(()) if b is None else b
            assert torch.allclose(a.double(), b.double(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_double_backward_of_low_precision_with_float_weights(dtype):
    x, weight, bias, dy, normalized = inputs((4, 16), dtype, 1, torch.float32)
    leaves = differentiable(x, weight, bias)
    wide = differentiable(x.double(), weight.double(), bias.double())

    def second(op, leaves, dy):
        first = torch.autograd.grad(
            op(leaves[0], normalized, *leaves[1:]), leaves, dy, create_graph=True
        )
        return torch.autograd.grad(sum(g.double().sin().sum() for g in first), leaves[:2])

    expected = second(F.layer_norm, wide, dy.double())
    for leaf, grad, want in zip(leaves, second(ops.layer_norm, leaves, dy), expected):
        assert grad.dtype == leaf.dtype
        # sin of gradients that were rounded to 8 or 11 bits: some units of those in the result.
        assert torch.allclose(grad.double(), want, rtol=0.1, atol=0.1 * want.abs().max().item())


@pytest.mark.parametrize("mask", list(itertools.product(BOOLS, repeat=3)))
def test_only_gradients_that_were_asked_for_are_differentiable(mask):
    x, weight, bias, dy, normalized = double_inputs((4, 6))
    _, mean, rstd = ops.layer_norm_forward(x, normalized, weight, bias)
    dy, x, weight, bias = differentiable(dy, x, weight, bias)
    for op in BACKWARDS:
        grads = op(dy, x, normalized, mean, rstd, weight, bias, list(mask))
        assert [g is not None and g.requires_grad for g in grads] == list(mask)
        if any(mask):
            total = sum(g.sum() for g in grads if g is not None)
            second = torch.autograd.grad(total, (dy, x, weight), allow_unused=True)
            # dB does not depend on x, and only dX depends on the weight.
            assert [g is not None for g in second] == [True, mask[0] or mask[1], mask[0]]


def test_a_batch_of_gradients_at_once():
    x, weight, bias, _, normalized = double_inputs((3, 5))
    leaves = differentiable(x, weight, bias)
    seeds = torch.randn(4, 3, 5, dtype=torch.float64)
    y = ops.layer_norm(leaves[0], normalized, *leaves[1:])
    together = torch.autograd.grad(y, leaves, seeds, is_grads_batched=True, retain_graph=True)
    for i, seed in enumerate(seeds):
        for grad, want in zip(together, torch.autograd.grad(y, leaves, seed, retain_graph=True)):
            assert torch.allclose(grad[i], want, rtol=1e-12, atol=1e-12)


def test_third_derivative_raises():
    x, weight, bias, _, normalized = double_inputs()
    x, weight, bias = differentiable(x, weight, bias)
    (first,) = torch.autograd.grad(
        ops.layer_norm(x, normalized, weight, bias).sin().sum(), x, create_graph=True
    )
    (second,) = torch.autograd.grad(first.sin().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiable twice, but a third derivative"):
        second.sum().backward()


def test_statistics_are_not_differentiable():
    x, weight, bias, _, normalized = double_inputs()
    x.requires_grad_()
    y, mean, rstd = ops.layer_norm_forward(x, normalized, weight, bias)
    assert y.requires_grad and not mean.requires_grad and not rstd.requires_grad


def test_backward_twice_and_retain_graph():
    x, weight, bias, dy, normalized = double_inputs()
    x.requires_grad_()
    y = ops.layer_norm(x, normalized, weight, bias)
    y.backward(dy, retain_graph=True)
    once = x.grad.clone()
    y.backward(dy)
    assert torch.allclose(x.grad, 2 * once)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward(dy)


def test_saved_tensors_are_versioned():
    for position in range(3):
        x, weight, bias, dy, normalized = double_inputs()
        leaves = [t.requires_grad_() for t in (x, weight, bias)]
        used = [t * 1 for t in leaves]
        y = ops.layer_norm(used[0], normalized, *used[1:])
        used[position].add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward(dy)


def test_saved_tensors_hooks_see_what_is_saved():
    x, weight, bias, dy, normalized = double_inputs()
    x.requires_grad_()
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        y = ops.layer_norm(x, normalized, weight, bias)
    assert len(packed) == 5  # input, mean, rstd, weight, bias
    y.backward(dy)
    assert x.grad is not None


def test_output_may_be_modified_in_place():
    x, weight, bias, dy, normalized = double_inputs()
    x.requires_grad_()
    y = ops.layer_norm(x, normalized, weight, bias)
    y.mul_(2)
    y.backward(dy)
    ours, x.grad = x.grad, None
    (F.layer_norm(x, normalized, weight, bias) * 2).backward(dy)
    assert torch.allclose(ours, x.grad)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_nothing_is_recorded_where_nothing_should_be(mode):
    x, weight, bias, dy, normalized = double_inputs()
    x.requires_grad_()
    recorded = ops.layer_norm(x, normalized, weight, bias)
    with mode():
        y, mean, rstd = ops.layer_norm_forward(x, normalized, weight, bias)
        alone = ops.layer_norm(x, normalized, weight, bias)
        grads = ops.layer_norm_backward(
            dy, x, normalized, mean, rstd, weight, bias, [True, True, True]
        )
    for t in (y, mean, rstd, alone, *grads):
        assert not t.requires_grad and t.grad_fn is None
        assert t.is_inference() == (mode is torch.inference_mode)
    assert same_bits(alone, recorded)


def test_inference_tensors_are_accepted_outside_inference_mode():
    with torch.inference_mode():
        x = torch.randn(3, 5)
    assert same_bits(ops.layer_norm(x, [5]), ops.layer_norm(x.clone(), [5]))


def test_grad_fn_has_a_name():
    x = torch.randn(3, 5, requires_grad=True)
    assert ops.layer_norm(x, [5]).grad_fn.name() == "HipnormLayerNormBackward"


def test_several_threads_run_backward_at_once():
    x, weight, bias, dy, normalized = inputs((40, 64))
    x.requires_grad_()
    results = [None] * 8

    def work(i):
        y = ops.layer_norm(x, normalized, weight, bias)
        (results[i],) = torch.autograd.grad(y, x, dy)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(results))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for grad in results:
        assert torch.allclose(grad, results[0], rtol=1e-4, atol=1e-5)


def test_module_with_our_operator_trains_like_layer_norm():
    x, _, _, dy, normalized = inputs((16, 32))
    module = torch.nn.LayerNorm(32)
    ours = ops.layer_norm(x, normalized, module.weight, module.bias, module.eps)
    ours.backward(dy)
    grads = [p.grad.clone() for p in module.parameters()]
    module.zero_grad()
    module(x).backward(dy)
    for grad, parameter in zip(grads, module.parameters()):
        assert torch.allclose(grad, parameter.grad, rtol=1e-4, atol=1e-5)


def test_autocast_on_the_cpu_changes_nothing():
    """As for F.layer_norm: it is in none of the CPU's lists."""
    for dtype in (torch.float32, torch.bfloat16):
        x, weight, bias, _, normalized = inputs((4, 8), dtype)
        x, weight, bias = x.cpu(), weight.cpu(), bias.cpu()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            ours = ops.layer_norm(x, normalized, weight, bias)
            theirs = F.layer_norm(x, normalized, weight, bias)
        assert ours.dtype == theirs.dtype == dtype


def test_autocast_on_cuda_is_float32():
    """Judged by fake CUDA tensors: no device is needed for dtypes."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        x = torch.empty(4, 8, dtype=torch.float16, device="cuda")
        weight = torch.empty(8, dtype=torch.float16, device="cuda")
        assert ops.layer_norm(x, [8], weight).dtype == torch.float16
        torch.set_autocast_enabled("cuda", True)
        try:
            assert F.layer_norm(x, [8], weight).dtype == torch.float32
            assert ops.layer_norm(x, [8], weight).dtype == torch.float32
            assert ops.layer_norm_forward(x, [8], weight)[0].dtype == torch.float32
            assert ops.layer_norm(x.double(), [8]).dtype == torch.float64
        finally:
            torch.set_autocast_enabled("cuda", False)
