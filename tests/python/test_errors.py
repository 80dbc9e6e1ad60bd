"""Every refusal: that it comes, from the kernels and from Meta alike, and what it says."""

import re

import pytest
import torch
from reference import DEVICE, inputs, ops

ALL = [True, True, True]


def forward_arguments(**changes):
    arguments = dict(
        input=torch.randn(2, 3, 4),
        normalized_shape=[3, 4],
        weight=torch.randn(3, 4),
        bias=torch.randn(3, 4),
        eps=1e-5,
    )
    return {**arguments, **changes}


FORWARD = [
    (
        dict(normalized_shape=[]),
        "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one "
        "element, but got normalized_shape = []",
    ),
    (
        dict(normalized_shape=[2, 4]),
        "Given normalized_shape=[2, 4], expected input with shape [*, 2, 4], but got input of "
        "size[2, 3, 4]",
    ),
    (
        dict(normalized_shape=[1, 2, 3, 4]),
        "Given normalized_shape=[1, 2, 3, 4], expected input with shape [*, 1, 2, 3, 4], but got "
        "input of size[2, 3, 4]",
    ),
    (
        dict(normalized_shape=[3, -4]),
        "Given normalized_shape=[3, -4], expected input with shape [*, 3, -4], but got input of "
        "size[2, 3, 4]",
    ),
    (
        dict(input=torch.randn(())),
        "Given normalized_shape=[3, 4], expected input with shape [*, 3, 4], but got input of "
        "size[]",
    ),
    (
        dict(weight=torch.randn(4)),
        "Expected weight to be of same shape as normalized_shape, but got weight of shape [4] and "
        "normalized_shape = [3, 4]",
    ),
    (
        dict(bias=torch.randn(4, 3)),
        "Expected bias to be of same shape as normalized_shape, but got bias of shape [4, 3] and "
        "normalized_shape = [3, 4]",
    ),
    (
        dict(weight=torch.randn(3, 4).half()),
        "Expected weight of dtype Float for input of dtype Float, but got weight of dtype Half",
    ),
    (
        dict(input=torch.randn(2, 3, 4).bfloat16(), bias=torch.randn(3, 4).double(), weight=None),
        "Expected bias of dtype Float or BFloat16 for input of dtype BFloat16, but got bias of "
        "dtype Double",
    ),
    (
        dict(input=torch.randn(2, 3, 4).double()),
        "Expected weight of dtype Double for input of dtype Double, but got weight of dtype Float",
    ),
    (
        dict(input=torch.randn(2, 3, 4).half(), bias=torch.randn(3, 4).half()),
        "Expected weight and bias of one dtype, but got weight of dtype Float and bias of dtype "
        "Half",
    ),
] + [
    (
        dict(input=torch.zeros(2, 3, 4, dtype=dtype)),
        "Expected input of dtype Float, Half, BFloat16 or Double, but got input of dtype " + name,
    )
    for dtype, name in [
        (torch.int64, "Long"),
        (torch.uint8, "Byte"),
        (torch.bool, "Bool"),
        (torch.complex64, "ComplexFloat"),
        (torch.float8_e4m3fn, "Float8_e4m3fn"),
    ]
]


def to_meta(arguments):
    return {
        k: v.to("meta") if isinstance(v, torch.Tensor) else v for k, v in arguments.items()
    }


@pytest.mark.parametrize("changes, message", FORWARD, ids=[m[:60] for _, m in FORWARD])
def test_forward_refuses(changes, message):
    arguments = forward_arguments(**changes)
    for op in (ops.layer_norm, ops.layer_norm_forward):
        for args in (arguments, to_meta(arguments)):
            with pytest.raises(RuntimeError, match=re.escape(message)):
                op(**args)
    del arguments["eps"]
    with pytest.raises(RuntimeError, match=re.escape(message)):
        ops.selected_config("forward", **arguments)


def backward_arguments(dtype=torch.float32, **changes):
    arguments = dict(
        grad_output=torch.randn(2, 3, 4).to(dtype),
        input=torch.randn(2, 3, 4).to(dtype),
        normalized_shape=[4],
        mean=torch.randn(2, 3, 1),
        rstd=torch.randn(2, 3, 1),
        weight=torch.randn(4),
        bias=torch.randn(4),
        output_mask=ALL,
    )
    return {**arguments, **changes}


BACKWARD = [
    (
        dict(grad_output=torch.randn(2, 4, 3)),
        "Expected grad_output of the shape of input, [2, 3, 4], but got grad_output of shape "
        "[2, 4, 3]",
    ),
    (
        dict(grad_output=torch.randn(6, 4)),
        "Expected grad_output of the shape of input, [2, 3, 4], but got grad_output of shape "
        "[6, 4]",
    ),
    (
        dict(grad_output=torch.randn(2, 3, 4).double()),
        "Expected grad_output of the dtype of input, Float, but got grad_output of dtype Double",
    ),
    (
        dict(mean=torch.randn(5)),
        "Expected mean of 6 elements, one for each row of input, but got mean of shape [5]",
    ),
    (
        dict(rstd=torch.randn(2, 3, 4)),
        "Expected rstd of 6 elements, one for each row of input, but got rstd of shape [2, 3, 4]",
    ),
    (
        dict(mean=torch.randn(6).half()),
        "Expected mean of dtype Float for input of dtype Float, but got mean of dtype Half",
    ),
    (
        dict(dtype=torch.bfloat16, rstd=torch.randn(6).half()),
        "Expected rstd of dtype Float or BFloat16 for input of dtype BFloat16, but got rstd of "
        "dtype Half",
    ),
    (
        dict(weight=torch.randn(3)),
        "Expected weight to be of same shape as normalized_shape, but got weight of shape [3]",
    ),
    (
        dict(normalized_shape=[5]),
        "Given normalized_shape=[5], expected input with shape [*, 5], but got input of "
        "size[2, 3, 4]",
    ),
]


@pytest.mark.parametrize("changes, message", BACKWARD, ids=[m[:60] for _, m in BACKWARD])
def test_backward_refuses(changes, message):
    arguments = backward_arguments(**changes)
    for op in (
        ops.layer_norm_backward,
        ops.layer_norm_backward_fused,
        ops.layer_norm_backward_two_kernel,
    ):
        for args in (arguments, to_meta(arguments)):
            with pytest.raises(RuntimeError, match=re.escape(message)):
                op(**args)


DOUBLE_BACKWARD = [
    (
        dict(grad_grad_input=torch.randn(3, 2, 4)),
        "Expected grad_grad_input of the shape of input, [2, 3, 4], but got grad_grad_input of "
        "shape [3, 2, 4]",
    ),
    (
        dict(grad_grad_input=torch.randn(4)),
        "Expected grad_grad_input of the shape of input, [2, 3, 4], but got grad_grad_input of "
        "shape [4]",
    ),
    (
        dict(grad_grad_input=torch.randn(2, 3, 4).double()),
        "Expected grad_grad_input of the dtype of input, Float, but got grad_grad_input of dtype "
        "Double",
    ),
    (
        dict(grad_grad_weight=torch.randn(2, 3, 4)),
        "Expected grad_grad_weight to be of same shape as normalized_shape, but got "
        "grad_grad_weight of shape [2, 3, 4] and normalized_shape = [4]",
    ),
    (
        dict(grad_grad_bias=torch.randn(1)),
        "Expected grad_grad_bias to be of same shape as normalized_shape, but got grad_grad_bias "
        "of shape [1] and normalized_shape = [4]",
    ),
    (
        dict(grad_grad_bias=torch.randn(4).half()),
        "Expected grad_grad_bias of dtype Float for input of dtype Float, but got grad_grad_bias "
        "of dtype Half",
    ),
    (dict(rstd=torch.randn(5)), "Expected rstd of 6 elements, one for each row of input"),
]


@pytest.mark.parametrize("changes, message", DOUBLE_BACKWARD, ids=[m[:60] for _, m in DOUBLE_BACKWARD])
def test_double_backward_refuses(changes, message):
    arguments = dict(
        grad_grad_input=torch.randn(2, 3, 4),
        grad_grad_weight=torch.randn(4),
        grad_grad_bias=torch.randn(4),
        **backward_arguments(),
    )
    del arguments["bias"]
    ops._layer_norm_double_backward(**arguments)
    arguments.update(changes)
    for args in (arguments, to_meta(arguments)):
        with pytest.raises(RuntimeError, match=re.escape(message)):
            ops._layer_norm_double_backward(**args)


@pytest.mark.parametrize("name", ["grad_grad_input", "grad_grad_weight", "grad_grad_bias"])
def test_double_backward_tensors_on_another_device(name):
    arguments = dict(grad_grad_input=None, grad_grad_weight=None, grad_grad_bias=None)
    arguments[name] = torch.randn(*((2, 3, 4) if name == "grad_grad_input" else (4,)), device="meta")
    arguments.update(backward_arguments())
    del arguments["bias"]
    message = f"Expected {name} on the device of input, {DEVICE}, but got {name} on meta"
    with pytest.raises(RuntimeError, match=message):
        ops._layer_norm_double_backward(**arguments)


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_parameters_on_another_device(name):
    message = f"Expected {name} on the device of input, {DEVICE}, but got {name} on meta"
    with pytest.raises(RuntimeError, match=message):
        ops.layer_norm(**forward_arguments(**{name: torch.randn(3, 4, device="meta")}))


@pytest.mark.parametrize("name", ["grad_output", "mean", "rstd"])
def test_backward_tensors_on_another_device(name):
    arguments = backward_arguments()
    arguments[name] = arguments[name].to("meta")
    message = f"Expected {name} on the device of input, {DEVICE}, but got {name} on meta"
    with pytest.raises(RuntimeError, match=message):
        ops.layer_norm_backward(**arguments)


def test_unknown_op_of_selected_config():
    with pytest.raises(ValueError, match='Expected op to be forward, .*but got "sideways"'):
        ops.selected_config("sideways", torch.randn(2, 3), [3])


def test_refusal_comes_before_autograd_records_anything():
    x, weight, _, _, _ = inputs((4, 6))
    x.requires_grad_()
    with pytest.raises(RuntimeError, match="Given normalized_shape"):
        ops.layer_norm(x, [5], weight)
