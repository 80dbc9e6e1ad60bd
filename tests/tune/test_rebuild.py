"""From a sweep to a build that chooses by it: sweep, promote, build again.

CMAKE, CXX, CMAKE_GENERATOR: those of the build that this tests.
"""

import os
import subprocess
from pathlib import Path

from driver import config, this_build, tune

PROJECT = Path(__file__).with_name("rebuild")
CMAKE = os.environ["CMAKE"]


def run(*args):
    result = subprocess.run(list(map(str, args)), capture_output=True, text=True, timeout=240,
                            check=False)  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_a_promoted_row_is_chosen_after_the_next_build(sweep):
    configs, build = sweep.folder / "configs", sweep.folder / "build"
    configs.mkdir()
    table = configs / "cpu-test.csv"
    run(CMAKE, "-S", PROJECT, "-B", build, "-DCMAKE_BUILD_TYPE=Debug",
        f"-DHIPNORM_CONFIGS_DIR={configs}")  # fmt: skip

    def choices():
        run(CMAKE, "--build", build, "--target", "choice", "-j", 2)
        return run(build / "choice", 64, 256, 64, 300, 64, 5000).splitlines()

    # No file at all.
    assert [line.split("source=")[1] for line in choices()] == ["default"] * 3
    # A new one.
    assert sweep.run({config(2): 50.0}, FAKE_BUILD=this_build()).returncode == 0
    result = tune("promote", sweep.journal, "--output", table, "--allow-dirty")
    assert result.returncode == 0, result.stderr
    first, near, far = choices()
    assert first == f"{config(2)}  source=table"
    assert near == f"{config(2)}  source=near"
    assert far.endswith("source=default")
    # An edited one.
    table.write_text(table.read_text().replace(config(2), config(7)))
    assert choices()[0] == f"{config(7)}  source=table"
    # None again.
    table.unlink()
    assert choices()[0].endswith("source=default")
