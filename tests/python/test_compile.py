"""What torch.compile, torch.export and opcheck demand of an operator."""

import pytest
import torch
from reference import assert_close, backward, forward, inputs, ops, same_bits
from torch.library import opcheck

ALL = [True, True, True]
BACKWARDS = ["layer_norm_backward", "layer_norm_backward_fused", "layer_norm_backward_two_kernel"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("has_weight, has_bias", [(True, True), (True, False), (False, False)])
@pytest.mark.parametrize("op", ["layer_norm", "layer_norm_forward"])
def test_opcheck_of_forward(op, has_weight, has_bias, dtype):
    x, weight, bias, _, normalized = inputs((4, 3, 8), dtype, 1, None, has_weight, has_bias)
    x = x.transpose(0, 1)
    tensors = [None if t is None else t.requires_grad_() for t in (x.detach(), weight, bias)]
    opcheck(getattr(ops, op).default, (tensors[0], normalized, *tensors[1:], 1e-5))


# bf16, a single column, no rows: where meta results once had other dtypes or strides than real ones.
CASES = [
    ((6, 8), torch.float32, True, True),
    ((6, 8), torch.bfloat16, True, True),
    ((6, 8), torch.bfloat16, True, False),
    ((6, 8), torch.float32, False, False),
    ((0, 1), torch.float32, True, True),
    ((0, 1), torch.bfloat16, True, True),
]


@pytest.mark.parametrize("mask", [ALL, [True, False, False], [False, True, True]], ids=str)
@pytest.mark.parametrize("shape, dtype, has_weight, has_bias", CASES)
@pytest.mark.parametrize("op", BACKWARDS)
def test_opcheck_of_backward(op, shape, dtype, has_weight, has_bias, mask):
    x, weight, bias, dy, normalized = inputs(shape, dtype, 1, None, has_weight, has_bias)
    _, mean, rstd = ops.layer_norm_forward(x, normalized, weight, bias)
    dy, x, weight = (t if t is None else t.requires_grad_() for t in (dy, x, weight))
    opcheck(getattr(ops, op).default, (dy, x, normalized, mean, rstd, weight, bias, mask))


def test_opcheck_of_double_backward():
    x, weight, bias, dy, normalized = inputs((6, 8))
    _, mean, rstd = ops.layer_norm_forward(x, normalized, weight, bias)
    gradients = (torch.randn(6, 8), torch.randn(8), None)
    opcheck(
        ops._layer_norm_double_backward.default,
        (*gradients, dy, x, normalized, mean, rstd, weight, ALL),
    )


# Without (3, 0) of layer_norm_forward: there rstd is NaN, as ATen's is, and opcheck takes no NaN for
# another.
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "op, shape",
    [
        ("layer_norm", (0, 5)),
        ("layer_norm", (3, 0)),
        ("layer_norm", (0, 1)),
        ("layer_norm_forward", (0, 5)),
        ("layer_norm_forward", (0, 1)),
    ],
)
def test_opcheck_of_empty_input(op, shape, dtype):
    x, weight, bias, _, normalized = inputs(shape, dtype)
    tensors = [t.requires_grad_() for t in (x, weight, bias)]
    opcheck(getattr(ops, op).default, (tensors[0], normalized, *tensors[1:], 1e-5))


def test_opcheck_of_selected_config():
    opcheck(
        ops.selected_config.default,
        ("forward", torch.randn(4, 8), [8]),
        test_utils=("test_schema", "test_autograd_registration"),
    )


def train_step(x, weight, bias, dy):
    y = ops.layer_norm(x * 1.5, [x.shape[-1]], weight, bias)
    return y, torch.relu(y) * dy


def check_train_step(step, shape, dtype=torch.float32):
    x, weight, bias, dy, normalized = inputs(shape, dtype)
    leaves = [t.requires_grad_() for t in (x, weight, bias)]
    y, out = step(*leaves, dy)
    out.sum().backward()
    scaled = (x.detach() * 1.5).to(dtype)
    expected, _, _ = forward(scaled, 1, weight.detach(), bias.detach())
    assert_close(y.detach(), expected, "y")
    arriving = (dy * (y.detach() > 0)).to(dtype)
    want = backward(arriving, scaled, 1, weight.detach())
    for name, leaf, grad, factor in zip(["dX", "dW", "dB"], leaves, want, [1.5, 1, 1]):
        assert_close(leaf.grad, factor * grad, name, factor=8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_of_a_train_step(backend, dynamic, dtype):
    torch.compiler.reset()
    compiled = torch.compile(train_step, fullgraph=True, backend=backend, dynamic=dynamic)
    check_train_step(compiled, (6, 32), dtype)
    if not dynamic:
        return
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    check_train_step(compiled, (9, 32), dtype)
    check_train_step(compiled, (5, 48), dtype)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before


def test_compile_keeps_the_operators():
    graphs = []

    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    def backend(module, _):
        graphs.append(module)
        return make_boxed_func(module)

    torch.compiler.reset()
    compiled = torch.compile(train_step, fullgraph=True, backend=aot_autograd(fw_compiler=backend))
    check_train_step(compiled, (6, 32))
    targets = [[str(n.target) for n in g.graph.nodes] for g in graphs]
    names = [[t for t in ts if t.startswith("hipnorm")] for ts in targets]
    assert names == [
        ["hipnorm.layer_norm_forward.default"],
        ["hipnorm.layer_norm_backward.default"],
    ]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("op", BACKWARDS[1:])
def test_compile_of_the_two_backward_forms(op, backend):
    """Called by name, among operations that inductor fuses, and differentiated."""

    def step(x, weight, bias, dy):
        shape = [x.shape[-1]]
        _, mean, rstd = ops.layer_norm_forward(x.detach(), shape, weight.detach(), bias)
        dx, dweight, dbias = getattr(ops, op)(
            dy.relu(), x, shape, mean, rstd, weight, bias, ALL
        )
        return dx * 2, dweight + 1, dbias.neg()

    torch.compiler.reset()
    compiled = torch.compile(step, fullgraph=True, backend=backend)
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    x, weight, bias, dy, _ = inputs((7, 40))
    eager, ours = ([t.clone().requires_grad_() for t in (x, weight)] for _ in range(2))
    results = compiled(*ours, bias, dy)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs + 1
    dx, dweight, dbias = backward(dy.relu(), x, 1, weight)
    for name, result, want in zip(["dX", "dW", "dB"], results, [2 * dx, dweight + 1, -dbias]):
        assert_close(result.detach(), want, name, factor=4)
    sum(t.sin().sum() for t in results[:2]).backward()
    sum(t.sin().sum() for t in step(*eager, bias, dy)[:2]).backward()
    for a, b in zip(ours, eager):
        assert torch.allclose(a.grad, b.grad, rtol=1e-4, atol=1e-4)


def test_inductor_with_absent_parameters_and_partial_gradients():
    torch.compiler.reset()

    @torch.compile(fullgraph=True)
    def step(x, weight):
        return ops.layer_norm(x.sin(), [x.shape[-1]], weight, None).cos()

    x, weight, _, _, _ = inputs((7, 40))
    for x_needs in (True, False):
        leaves = (x.clone().requires_grad_(x_needs), weight.clone().requires_grad_())
        step(*leaves).sum().backward()
        eager = (x.clone().requires_grad_(x_needs), weight.clone().requires_grad_())
        (torch.nn.functional.layer_norm(eager[0].sin(), [40], eager[1]).cos()).sum().backward()
        for a, b in zip(leaves, eager):
            assert (a.grad is None) == (b.grad is None)
            assert a.grad is None or torch.allclose(a.grad, b.grad, rtol=1e-4, atol=1e-4)


def test_inductor_without_gradients_and_with_permuted_input():
    torch.compiler.reset()

    @torch.compile(fullgraph=True)
    def call(x):
        return ops.layer_norm((x + 1).permute(1, 0, 2), [8]) * 2

    x = torch.randn(3, 5, 8)
    with torch.no_grad():
        y = call(x)
    assert_close(y, 2 * forward((x + 1).permute(1, 0, 2))[0])


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(16))

    def forward(self, x):
        return ops.layer_norm(x, [16], self.weight).relu()


def test_export_with_dynamic_rows():
    module = Module()
    rows = torch.export.Dim("rows", min=2)
    exported = torch.export.export(module, (torch.randn(4, 16),), dynamic_shapes={"x": {0: rows}})
    assert any("hipnorm.layer_norm" in str(n.target) for n in exported.graph.nodes)
    for count in (2, 33):
        x = torch.randn(count, 16)
        assert same_bits(exported.module()(x), module(x))
    lowered = exported.run_decompositions()
    x = torch.randn(5, 16)
    assert same_bits(lowered.module()(x), module(x))


class Selecting(Module):
    """The number of rows is known only once the program runs, and may be 0."""

    def forward(self, x):
        rows = x[:, 0].nonzero().squeeze(1)
        return super().forward(x.index_select(0, rows))


def test_export_with_unbacked_rows():
    module = Selecting()
    x = torch.randn(6, 16)
    x[2, 0] = 0
    exported = torch.export.export(module, (x,))
    for zeros in (1, 3, 6):
        x = torch.randn(6, 16)
        x[:zeros, 0] = 0
        assert same_bits(exported.module()(x), module(x))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_with_unbacked_rows_and_gradients(backend):
    torch.compiler.reset()
    module = Selecting()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(module, fullgraph=True, backend=backend)
        x = torch.randn(6, 16)
        x[2, 0] = 0
        compiled(x).sum().backward()
    ours, module.weight.grad = module.weight.grad, None
    module(x).sum().backward()
    assert torch.equal(ours, module.weight.grad)


class Backward(torch.nn.Module):
    """A graph that holds a backward operator, as one that was traced with its gradients does."""

    def __init__(self, op, select):
        super().__init__()
        self.op = getattr(ops, op)
        self.select = select
        self.weight = torch.nn.Parameter(torch.randn(16))

    def forward(self, x, dy):
        if self.select:
            rows = x[:, 0].nonzero().squeeze(1)
            x, dy = x.index_select(0, rows), dy.index_select(0, rows)
        _, mean, rstd = ops.layer_norm_forward(x, [16], self.weight)
        dx, dweight, _ = self.op(dy, x, [16], mean, rstd, self.weight, None, [True, True, False])
        return dx, dweight


@pytest.mark.parametrize("rows", ["static", "dynamic", "unbacked"])
@pytest.mark.parametrize("op", BACKWARDS)
def test_export_of_a_backward(op, rows):
    module = Backward(op, select=rows == "unbacked").requires_grad_(False)
    x, dy = torch.randn(6, 16), torch.randn(6, 16)
    x[2, 0] = 0
    size = {0: torch.export.Dim("rows", min=2)} if rows == "dynamic" else None
    exported = torch.export.export(module, (x, dy), dynamic_shapes={"x": size, "dy": size})
    assert f"hipnorm.{op}.default" in [str(n.target) for n in exported.graph.nodes]
    lowered = exported.run_decompositions().module()
    assert f"hipnorm.{op}.default" in [str(n.target) for n in lowered.graph.nodes]
    for count, zeros in {"static": [(6, 0)], "dynamic": [(2, 0), (33, 0)]}.get(
        rows, [(6, 1), (6, 3), (6, 6)]
    ):
        x, dy = torch.randn(count, 16), torch.randn(count, 16)
        x[:zeros, 0] = 0
        for run in (exported.module(), lowered):
            assert all(same_bits(a, b) for a, b in zip(run(x, dy), module(x, dy), strict=True))
