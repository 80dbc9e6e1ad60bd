"""The command line of hipnorm-bench, on shapes small enough that a run takes a second or two.

HIPNORM_BENCH: the program; HIPNORM_WRONG_OPERATORS: a library that makes hipnorm answer wrongly.
"""
import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))
from terminal import run_on_a_terminal

BENCH = os.environ["HIPNORM_BENCH"]
WRONG_OPERATORS = os.environ["HIPNORM_WRONG_OPERATORS"]
ROOT = Path(__file__).resolve().parents[2]
FIELDS = (
    "device arch torch dtype direction rows cols impl config source latency_us gbps "
    "copy_fraction speedup max_error graph_us"
).split()
SIX_DIGITS = 1e-4  # numbers are rounded to six digits before they are divided here


def bench(*args, env=None, **kwargs):
    """Runs the program with --quick, on one thread: two on a busy machine wait for each other."""
    if "--threads" not in args:
        args = ("--threads", "1", *args)
    variables = {k: v for k, v in os.environ.items() if k != "HIPNORM_FORCE_CONFIG"}
    return subprocess.run(
        [BENCH, "--quick", *args],
        env={**variables, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
        check=False,
        **kwargs,
    )


def json_rows(text):
    return [json.loads(line) for line in text.splitlines()]


def expect_usage_error(result, *words):
    assert result.returncode == 2, result
    assert result.stdout == ""
    assert result.stderr.startswith("hipnorm-bench: ")
    assert result.stderr.count("\n") == 1 and result.stderr.endswith("\n"), result.stderr
    for word in words:
        assert word in result.stderr


def test_help_explains_flags_and_columns():
    result = bench("--help")
    assert result.returncode == 0 and result.stderr == ""
    flags = (
        "--device --shapes --dtype --direction --format --output --config --quick --fresh-pages "
        "--threads --list-variants"
    )
    for word in flags.split() + FIELDS:
        assert re.search(rf"{word}\b", result.stdout), word


def test_list_variants_has_all_of_them():
    source = (ROOT / "kernels" / "variants.h").read_text(encoding="utf-8")
    names = re.findall(r"^ *V\((\w+),", source, re.MULTILINE)
    result = bench("--list-variants")
    assert result.returncode == 0 and result.stderr == ""
    assert re.findall(r"^(\w+)$", result.stdout, re.MULTILINE) == names
    assert re.search(r"cpu_forward_row\n  cpu; forward\n  rows_per_block=1\.\.2, vec_bytes=16\.\.64, ", result.stdout)


@pytest.mark.parametrize(
    "args, words",
    [
        (["--frobnicate"], ["--frobnicate"]),
        (["surplus"], ["surplus"]),
        (["--dtype", "f8"], ["--dtype", "f8", "bf16"]),
        (["--dtype", "none"], ["none"]),
        (["--dtype", "f32,,f16"], ["''"]),
        (["--dtype", "f32,f32"], ["f32", "twice"]),
        (["--direction", "sideways"], ["--direction", "sideways", "backward"]),
        (["--direction", "forward,forward"], ["forward", "twice"]),
        (["--device", "tpu"], ["--device", "tpu", "auto, cpu, cuda"]),
        (["--format", "xml"], ["--format", "xml", "table, csv, json"]),
        (["--shapes", "12xx7"], ["12xx7", "MxN"]),
        (["--shapes", "0x-3"], ["0x-3", "MxN"]),
        (["--shapes", "5x"], ["5x", "MxN"]),
        (["--shapes", "0x5"], ["0x5", "at least 1"]),
        (["--shapes", "5x0"], ["5x0", "at least 1"]),
        (["--shapes", "7x9,nope"], ["nope", "seed, llm"]),
        (["--shapes", "7x9,7x9"], ["7x9", "twice"]),
        (["--shapes", "99999999999999999999x1"], ["99999999999999999999x1", "64-bit"]),
        (["--shapes", "4611686018427387904x2"], ["4611686018427387904x2", "64-bit"]),
        (["--shapes", "1000000x1000000"], ["1000000x1000000", "needs", "available"]),
        (["--threads", "0"], ["--threads", "1 to 1024", "got 0"]),
        (["--threads", "many"], ["--threads", "many"]),
        (["--config", "forward"], ["--config", "forward"]),
        (["--config", "forward=no_such_variant"], ["--config", "no_such_variant"]),
        (["--config", "sideways=cpu_forward_row"], ["--config", "sideways"]),
        (["--output", "/no/such/folder/r.json"], ["--output", "/no/such/folder/r.json"]),
        (["--output", "/"], ["--output", "'/'", "folder"]),
        (["--dtype", "f32", "--dtype", "bf16"], ["--dtype"]),
        (["--quick=7"], ["quick"]),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, list) else None,
)
def test_bad_input_is_one_clear_line(args, words):
    expect_usage_error(bench(*args), *words)


def test_bad_input_leaves_the_output_alone(tmp_path):
    old = tmp_path / "r.json"
    old.write_text("old")
    expect_usage_error(bench("--output", str(old), "--dtype", "f8"), "f8")
    expect_usage_error(bench("--output", str(old), "--config", "forward=x"), "forward=x")
    expect_usage_error(bench("--output", str(old), "--shapes", "1000000x1000000"), "needs")
    assert old.read_text() == "old"
    assert list(tmp_path.iterdir()) == [old]


def test_cuda_without_a_gpu_is_refused():
    result = bench("--device", "cuda", "--shapes", "7x9", "--dtype", "f32")
    if result.returncode == 0:
        pytest.skip("this machine has a GPU")
    expect_usage_error(result, "--device cuda", "expected")


def test_json_lines():
    result = bench("--device", "cpu", "--shapes", "7x9,3x1000", "--dtype", "f32,bf16", "--format",
                   "json")  # fmt: skip
    assert result.returncode == 0, result
    assert "\r" not in result.stderr  # the progress line is for terminals
    assert "1 thread (cpu-" in result.stderr  # the heading, which stdout must not carry
    rows = json_rows(result.stdout)
    cases = [
        (rows_cols, dtype, direction)
        for rows_cols in ((7, 9), (3, 1000))
        for dtype in ("f32", "bf16")
        for direction in ("forward", "backward")
    ]
    assert len(rows) == 3 * len(cases)
    for index, (shape, dtype, direction) in enumerate(cases):
        ours, aten, copy = rows[3 * index : 3 * index + 3]
        assert [row["impl"] for row in (ours, aten, copy)] == ["hipnorm", "aten", "copy"]
        for row in (ours, aten, copy):
            assert list(row) == FIELDS
            assert (row["rows"], row["cols"]) == shape
            assert (row["dtype"], row["direction"]) == (dtype, direction)
            assert row["arch"].startswith("cpu-") and "thread" in row["device"]
            assert re.fullmatch(r"\d+\.\d+\.\d+", row["torch"])
            size = {"f32": 4, "bf16": 2}[dtype] * (2 if direction == "forward" else 3)
            gbps = size * shape[0] * shape[1] / row["latency_us"] * 1e-3
            assert row["gbps"] == pytest.approx(gbps, rel=SIX_DIGITS)
            assert row["copy_fraction"] == pytest.approx(
                copy["latency_us"] / row["latency_us"], rel=SIX_DIGITS
            )
            assert row["speedup"] == pytest.approx(
                aten["latency_us"] / row["latency_us"], rel=SIX_DIGITS
            )
        assert 0 <= ours["max_error"] <= 1
        assert ours["config"].startswith(f"cpu_{direction}_")
        assert ours["source"] == "default"
        assert aten["max_error"] >= 0
        assert copy["max_error"] is None
        assert aten["config"] is aten["source"] is copy["config"] is copy["source"] is None


def test_csv_has_the_same_fields():
    result = bench("--shapes", "7x9", "--dtype", "f16", "--direction", "backward", "--format",
                   "csv")  # fmt: skip
    assert result.returncode == 0, result
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [row["impl"] for row in rows] == ["hipnorm", "aten", "copy"]
    assert list(rows[0]) == FIELDS
    assert float(rows[0]["latency_us"]) > 0
    assert float(rows[0]["max_error"]) <= 1
    assert rows[0]["config"].startswith("cpu_backward_") and rows[2]["config"] == ""


def test_table_and_geometric_means():
    result = bench("--shapes", "1x256,1024x1024", "--dtype", "f32", "--direction", "forward",
                   "--threads", "2")  # fmt: skip
    assert result.returncode == 0, result
    assert "rror" not in result.stderr
    heading, columns, first, second, means, mean = result.stdout.splitlines()
    assert "2 threads (cpu-" in heading and "torch 2." in heading
    assert columns.split()[:3] == ["shape", "dtype", "direction"]
    assert first.split()[:3] == ["1x256", "f32", "forward"]
    assert second.split()[:3] == ["1024x1024", "f32", "forward"]
    assert "2^20" in means
    assert re.match(r"  f32  forward  +\d+\.\d\d x aten, \d\.\d\d of the copy \(1 shape\)", mean)
    # Of one shape the mean is that shape's speed-up.
    assert mean.split()[2] == second.split()[8]


def test_f64_is_judged_too():
    result = bench("--shapes", "5x1000", "--dtype", "f64", "--format", "json")
    assert result.returncode == 0, result
    ours = [row for row in json_rows(result.stdout) if row["impl"] == "hipnorm"]
    assert len(ours) == 2 and all(row["max_error"] <= 1 for row in ours)


def test_output_file_has_the_format_and_stdout_the_table(tmp_path):
    path = tmp_path / "r.json"
    path.write_text("old")
    result = bench("--shapes", "7x9", "--dtype", "f32", "--format", "json", "--output", str(path))
    assert result.returncode == 0, result
    assert len(json_rows(path.read_text())) == 6
    assert "7x9" in result.stdout and "{" not in result.stdout
    assert list(tmp_path.iterdir()) == [path]


def test_output_may_be_a_pipe():
    reader, writer = os.pipe()
    result = bench("--shapes", "7x9", "--dtype", "f32", "--direction", "forward", "--format", "csv",
                   "--output", f"/dev/fd/{writer}", pass_fds=[writer])  # fmt: skip
    os.close(writer)
    assert result.returncode == 0, result
    with os.fdopen(reader) as pipe:
        assert [row["impl"] for row in csv.DictReader(pipe)] == ["hipnorm", "aten", "copy"]


def test_interrupted_run_keeps_what_was_measured(tmp_path):
    path = tmp_path / "r.json"
    path.write_text("old")
    partial = tmp_path / "r.json.partial"
    with subprocess.Popen(
        [BENCH, "--quick", "--threads", "1", "--shapes", "7x9,1x256,seed", "--dtype", "f32",
         "--format", "json", "--output", str(path)],
        stdout=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            deadline = time.monotonic() + 120
            while not (partial.exists() and partial.stat().st_size > 0):
                assert time.monotonic() < deadline and process.poll() is None
                time.sleep(0.05)
            process.terminate()  # no SIGINT: whoever runs in the background may have it ignored
            assert process.wait(timeout=60) == -signal.SIGTERM
        finally:
            process.kill()
    assert path.read_text() == "old"
    rows = json_rows(partial.read_text())  # whole lines only
    assert rows[0]["impl"] == "hipnorm" and len(rows) % 3 == 0


def test_progress_on_a_terminal():
    shown, stdout = run_on_a_terminal(
        [BENCH, "--quick", "--threads", "1", "--shapes", "7x9", "--dtype", "f32", "--direction",
         "forward"]
    )  # fmt: skip
    assert b"\r" in shown and b"[1/1] 7x9 f32 forward: timing" in shown
    assert b"[1/1]" not in shown.rsplit(b"\r\x1b[K", 1)[1]  # nothing of it is left
    assert "\r" not in stdout


def test_forced_config():
    text = "forward=cpu_forward_row:vec_bytes=16,parts=1"
    result = bench("--shapes", "7x9", "--dtype", "f32", "--format", "json", "--config", text,
                   env={"HIPNORM_FORCE_CONFIG": "backward=cpu_backward_two_kernel"})  # fmt: skip
    assert result.returncode == 0, result
    ours = [row for row in json_rows(result.stdout) if row["impl"] == "hipnorm"]
    # The flag takes the place of the variable.
    assert [row["source"] for row in ours] == ["forced", "default"]
    assert ours[0]["config"].startswith(
        "cpu_forward_row:rows_per_block=1,vec_bytes=16,parts=1"
    )


@pytest.mark.parametrize("variable", ["HIPNORM_FORCE_CONFIG", "HIPNORM_CPU_CAPABILITY"])
def test_unreadable_variable_ends_before_anything_is_measured(variable, tmp_path):
    result = bench("--shapes", "7x9", "--output", str(tmp_path / "r.json"),
                   env={variable: "garbage"})  # fmt: skip
    expect_usage_error(result, variable, "garbage")
    assert list(tmp_path.iterdir()) == []


# Capability: the bytes of its vectors, and what /proc/cpuinfo says of a processor that has it.
CAPABILITIES = {
    "baseline": (16, set()),
    "avx2": (32, {"avx2", "fma", "f16c"}),
    "avx512": (64, {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq"}),
}


def processor_has(capability):
    flags = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return CAPABILITIES[capability][1] <= set(flags[1].split() if flags else ())


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_capability(capability):
    result = bench("--device", "cpu", "--shapes", "7x9,3x1000", "--dtype", "f32,bf16", "--format",
                   "json", env={"HIPNORM_CPU_CAPABILITY": capability})  # fmt: skip
    if not processor_has(capability):
        expect_usage_error(result, "HIPNORM_CPU_CAPABILITY", capability)
        return
    assert result.returncode == 0, result
    assert f"(cpu-{capability})" in result.stderr
    rows = json_rows(result.stdout)
    assert len(rows) == 2 * 2 * 2 * 3
    assert {row["arch"] for row in rows} == {f"cpu-{capability}"}
    ours = [row for row in rows if row["impl"] == "hipnorm"]
    assert all(row["max_error"] <= 1 for row in ours)
    # A narrower vector may be the faster one, but not for rows as narrow as 7x9.
    widths = [int(re.search(r"vec_bytes=(\d+)", row["config"])[1]) for row in ours]
    assert max(widths) == widths[0] == CAPABILITIES[capability][0]


def test_config_that_cannot_run_is_reported_and_the_rest_measured():
    result = bench("--shapes", "7x9", "--dtype", "f32", "--format", "json", "--config",
                   "backward=cpu_backward_row:vec_bytes=64",
                   env={"HIPNORM_CPU_CAPABILITY": "baseline"})  # fmt: skip
    assert result.returncode == 1, result
    assert "hipnorm-bench: 7x9 f32 backward: " in result.stderr and "vec_bytes=64" in result.stderr
    rows = json_rows(result.stdout)
    assert [(row["impl"], row["direction"]) for row in rows] == [
        ("hipnorm", "forward"),
        ("aten", "forward"),
        ("copy", "forward"),
        ("hipnorm", "backward"),
    ]
    assert rows[3]["latency_us"] is None and rows[3]["max_error"] is None


def test_wrong_results_are_an_error_and_not_timed(tmp_path):
    path = tmp_path / "r.json"
    result = bench("--shapes", "4x8,5x8,6x8,7x8", "--dtype", "f32", "--format", "json", "--output",
                   str(path), env={"LD_PRELOAD": WRONG_OPERATORS})  # fmt: skip
    assert result.returncode == 1, result
    assert re.search(r"^hipnorm-bench: 5x8 f32 forward: wrong result.* y: .*\(3, 2\)",
                     result.stderr, re.MULTILINE)  # fmt: skip
    assert re.search(r"^hipnorm-bench: 5x8 f32 backward: wrong result.* dW: .*, 1\)",
                     result.stderr, re.MULTILINE)  # fmt: skip
    assert re.search(r"^hipnorm-bench: 6x8 f32 forward: .*six rows", result.stderr, re.MULTILINE)
    assert result.stdout.count("WRONG RESULT") == 2 and result.stdout.count("FAILED") == 2
    ours = [row for row in json_rows(path.read_text()) if row["impl"] == "hipnorm"]
    assert [row["rows"] for row in ours] == [4, 4, 5, 5, 6, 6, 7, 7]
    for row in ours:
        timed = row["rows"] in (4, 7)  # the other cases are measured all the same
        assert (row["latency_us"] is not None) == timed
        if row["rows"] == 5:
            assert row["max_error"] > 1
        elif row["rows"] == 6:
            assert row["max_error"] is None


def page_faults(*args):
    """Minor page faults of a whole run."""
    with subprocess.Popen([BENCH, "--quick", *args], stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_minflt


def test_fresh_pages_are_fresh_and_resident_ones_are_not():
    # One output is 16 MiB, 4096 pages. At least 3 rounds of 3 sides, and 2 to warm up.
    case = ["--shapes", "1024x4096", "--dtype", "f32", "--direction", "forward", "--threads", "1"]
    resident, fresh = page_faults(*case), page_faults(*case, "--fresh-pages")
    assert fresh - resident > 8 * 4096
