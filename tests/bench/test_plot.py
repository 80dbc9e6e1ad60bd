"""bench/plot.py on hand-made rows."""
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

PLOT = Path(__file__).resolve().parents[2] / "bench" / "plot.py"


def plot(*args):
    return subprocess.run(
        [sys.executable, str(PLOT), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def row(impl, cols, **changes):
    values = {
        "device": "a CPU", "arch": "cpu-avx2", "torch": "2.13.0", "dtype": "f32",
        "direction": "forward", "rows": 4, "cols": cols, "impl": impl, "config": None,
        "source": None, "latency_us": 10.0, "gbps": 5.0, "copy_fraction": 0.5, "speedup": 1.0,
        "max_error": 0.5,
    }  # fmt: skip
    return json.dumps({**values, **changes}) + "\n"


def test_help():
    result = plot("--help")
    assert result.returncode == 0 and "--metric" in result.stdout


@pytest.mark.parametrize(
    "text, word",
    [
        ("", "no measured row"),
        ("not json\n", ":1: expected one JSON object"),
        (row("hipnorm", 8) + "[1]\n", ":2: expected a JSON object"),
        ('{"rows": 4}\n', "device is missing"),
        (row("hipnorm", 8, copy_fraction="fast"), "expected a number in copy_fraction"),
        (row("hipnorm", 8, copy_fraction=None), "no measured row"),
    ],
)
def test_bad_files_are_named(tmp_path, text, word):
    path = tmp_path / "r.json"
    path.write_text(text)
    result = plot(path)
    assert result.returncode == 2
    assert result.stderr.startswith("plot.py: ") and result.stderr.count("\n") == 1
    assert str(path) in result.stderr and word in result.stderr
    assert list(tmp_path.iterdir()) == [path]


def test_missing_file_and_unknown_metric(tmp_path):
    result = plot(tmp_path / "none.json")
    assert result.returncode == 2 and "none.json" in result.stderr
    assert plot(tmp_path / "none.json", "--metric", "beauty").returncode == 2


def test_draws_or_says_that_matplotlib_is_missing(tmp_path):
    path = tmp_path / "r.json"
    path.write_text(
        "".join(row(impl, cols) for cols in (8, 16) for impl in ("hipnorm", "aten", "copy"))
        + row("hipnorm", 32, latency_us=None, gbps=None, copy_fraction=None, speedup=None)
    )
    have_matplotlib = importlib.util.find_spec("matplotlib") is not None
    for metric in ("copy_fraction", "gbps", "latency_us", "speedup"):
        result = plot(path, "--metric", metric, "--output", tmp_path / f"{metric}.svg")
        if have_matplotlib:
            assert result.returncode == 0, result
            image = (tmp_path / f"{metric}.svg").read_text(encoding="utf-8")
            assert "<svg" in image
        else:
            assert result.returncode == 2 and "pip install matplotlib" in result.stderr
