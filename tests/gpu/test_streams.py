"""Streams, graphs, devices, and what runs beside a call: a call is queued, in order, on torch's
current stream, and nothing else happens."""

import os
import subprocess
import sys
import time

import pytest
import torch
from cases import ALL, BACKWARDS, make
from conftest import LIBRARY
from reference import ops

# Narrow, wide, few rows, many rows: each takes another kernel.
SHAPES = [(512, 256), (1152, 11776), (5, 40920), (3000, 2048), (65537, 33)]
two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


def step(x, dy, weight, bias):
    """Forward, then all three backward operators: eleven or twelve tensors."""
    cols = [x.shape[-1]]
    forward = ops.layer_norm_forward(x, cols, weight, bias)
    results = list(forward)
    for op in BACKWARDS:
        results += op(dy, x, cols, *forward[1:], weight, bias, ALL)
    return results


def same(results, expected):
    return all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_graph_replays_with_changed_inputs(shape, dtype):
    static = make(*shape, dtype)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step(*static)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = step(*static)
    for _ in range(3):
        fresh = make(*shape, dtype)
        for tensor, value in zip(static, fresh):
            tensor.copy_(value)
        for tensor in recorded:
            tensor.fill_(torch.nan)
        graph.replay()
        assert same(recorded, step(*fresh))


def test_graph_of_autograd():
    x, dy, weight, bias = make(257, 1000, torch.bfloat16)
    inputs = [t.requires_grad_() for t in (x, weight, bias)]

    def train():
        y = ops.layer_norm(x, [1000], weight, bias)
        return [y, *torch.autograd.grad(y, inputs, dy)]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        train()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = train()
    with torch.no_grad():
        x.normal_()
        dy.normal_()
    graph.replay()
    assert same([t.detach() for t in recorded], [t.detach() for t in train()])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_first_call_of_a_process_inside_a_capture(shape):
    """Kernels are loaded, and their limits lifted, while the stream records."""
    program = """
import sys, torch
torch.ops.load_library(sys.argv[1])
rows, cols = int(sys.argv[2]), int(sys.argv[3])
ops = torch.ops.hipnorm
x, dy = (torch.randn(rows, cols, device="cuda", dtype=torch.bfloat16) for _ in range(2))
w, b = (torch.randn(cols, device="cuda", dtype=torch.bfloat16) for _ in range(2))
def step():
    y, mean, rstd = ops.layer_norm_forward(x, [cols], w, b)
    return y, *ops.layer_norm_backward(dy, x, [cols], mean, rstd, w, b, [True] * 3)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    recorded = step()
graph.replay()
torch.cuda.synchronize()
print(all(torch.equal(a, b) for a, b in zip(recorded, step())))
"""
    result = subprocess.run(
        [sys.executable, "-c", program, LIBRARY, *map(str, shape)],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ,
    )
    assert result.stdout.strip() == "True", result.stderr


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_two_streams_at_once(shape):
    cases = [make(*shape, torch.bfloat16) for _ in range(2)]
    expected = [step(*case) for case in cases]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in cases]
    results = [[], []]
    for _ in range(20):
        for i, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                results[i].append(step(*cases[i]))
    torch.cuda.synchronize()
    for i in range(2):
        assert all(same(run, expected[i]) for run in results[i])


def test_call_waits_for_what_its_stream_did_before():
    """On a side stream behind 50 ms of other work, which writes the input last."""
    x, dy, weight, bias = make(64, 4096)
    value = torch.randn_like(x)
    expected = step(value, dy, weight, bias)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(int(1e8))
        x.copy_(value)
        results = step(x, dy, weight, bias)
    torch.cuda.synchronize()
    assert same(results, expected)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_nothing_waits_for_the_gpu(shape):
    case = make(*shape, torch.bfloat16)
    step(*case)  # kernels are loaded, memory is at hand
    torch.cuda.synchronize()
    end = torch.cuda.Event()
    torch.cuda._sleep(int(4e8))  # 200 ms at 2 GHz
    start = time.perf_counter()
    results = step(*case)
    seconds = time.perf_counter() - start
    end.record()
    still_running = not end.query()
    torch.cuda.synchronize()
    assert still_running and seconds < 0.01, f"returned after {seconds * 1e3} ms"
    assert same(results, step(*case))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_hundred_runs_agree_bit_for_bit(shape, dtype):
    case = make(*shape, dtype)
    expected = step(*case)
    busy = torch.cuda.Stream()
    a = torch.randn(4096, 4096, dtype=torch.bfloat16)
    torch.cuda.synchronize()
    for run in range(100):
        if run % 2 == 1:
            with torch.cuda.stream(busy):
                torch.mm(a, a)
        assert same(step(*case), expected), f"run {run}"


@two_gpus
def test_tensors_on_a_device_that_is_not_current():
    expected = None
    for current, device in [(0, 0), (0, 1), (1, 0), (1, 1)]:
        torch.cuda.set_device(current)
        torch.manual_seed(0)
        case = [t.to(f"cuda:{device}") for t in make(512, 11776, torch.bfloat16)]
        case = case if expected is None else [t.to(f"cuda:{device}") for t in expected[0]]
        results = step(*case)
        assert torch.cuda.current_device() == current
        assert all(t.device.index == device for t in results)
        # Two GPUs of one kind give the same bits.
        if expected is None:
            expected = case, results
        assert same([t.to("cuda:0") for t in results], expected[1])
    torch.cuda.set_device(0)


@two_gpus
def test_stream_of_a_device_that_is_not_current():
    case = [t.to("cuda:1") for t in make(512, 4096)]
    expected = step(*case)
    stream = torch.cuda.Stream("cuda:1")
    stream.wait_stream(torch.cuda.current_stream("cuda:1"))
    with torch.cuda.stream(stream):
        with torch.cuda.device(0):
            torch.cuda.current_device()
        results = step(*case)
    torch.cuda.synchronize("cuda:1")
    assert same(results, expected)


@two_gpus
def test_backward_through_autograd_on_another_device():
    x, dy, weight, bias = (t.to("cuda:1") for t in make(64, 1000))
    x.requires_grad_()
    ops.layer_norm(x, [1000], weight, bias).backward(dy)
    expected = step(x.detach(), dy, weight, bias)[3]
    assert torch.equal(x.grad, expected)


@two_gpus
def test_tensors_on_two_devices_are_refused():
    x, dy, weight, bias = make(8, 64)
    message = "Expected weight on the device of input, cuda:0, but got weight on cuda:1"
    with pytest.raises(RuntimeError, match=message):
        ops.layer_norm(x, [64], weight.to("cuda:1"), bias)


def test_tensors_on_the_cpu_and_a_gpu_are_refused():
    x, dy, weight, bias = make(8, 64)
    message = "Expected weight on the device of input, "
    with pytest.raises(RuntimeError, match=message + "cuda:0, but got"):
        ops.layer_norm(x, [64], weight.cpu(), bias)
    with pytest.raises(RuntimeError, match=message + "cpu, but got"):
        ops.layer_norm(x.cpu(), [64], weight, bias)


def test_tensors_on_the_cpu_still_take_the_cpu_kernels():
    x = torch.randn(8, 64, device="cpu")
    assert ops.layer_norm(x, [64]).is_cpu
    assert ops.selected_config("forward", x, [64]).startswith("cpu_")


def test_memory_comes_from_torch_alone():
    case = make(3000, 2048)
    step(*case)
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0], torch.cuda.memory_reserved()
    for _ in range(10):
        step(*case)
    torch.cuda.synchronize()
    assert (torch.cuda.mem_get_info()[0], torch.cuda.memory_reserved()) == before


def test_out_of_memory_leaves_everything_as_it_was():
    x, dy, weight, bias = make(1 << 14, 1 << 12)
    _, mean, rstd = ops.layer_norm_forward(x, [1 << 12], weight, bias)
    expected = step(x, dy, weight, bias)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    used = torch.cuda.memory_allocated()
    try:
        # Room for dX, not for the workspace and the rest.
        for room in (0, x.nbytes // 2, x.nbytes + (1 << 21)):
            torch.cuda.set_per_process_memory_fraction((used + room) / total)
            try:
                ops.layer_norm_backward(dy, x, [1 << 12], mean, rstd, weight, bias, ALL)
            except torch.OutOfMemoryError:
                pass
            assert torch.cuda.memory_allocated() == used
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert same(step(x, dy, weight, bias), expected)
