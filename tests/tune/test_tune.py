"""hipnorm-tune: the sweep with a worker that misbehaves, killed and resumed; promote, verify, status,
explain; and one real sweep on the CPU.

HIPNORM_TUNE: the program.
"""
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TUNE = os.environ["HIPNORM_TUNE"]
FAKE = f"{sys.executable} {Path(__file__).with_name('fake_worker.py')}"
DEFAULT = "cpu_forward_row:rows_per_block=1,vec_bytes=16,parts=1,stream=0"
CELL = "forward f32 weight=f32 bias=1 64x256"


def config(parts):
    return f"cpu_forward_row:rows_per_block=1,vec_bytes=16,parts={parts},stream=0"


def tune(*args, env=None, timeout=300):
    variables = {k: v for k, v in os.environ.items() if not k.startswith("HIPNORM_CONFIG")}
    return subprocess.run(
        [TUNE, *map(str, args)],
        env={**variables, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


class Sweep:
    """A sweep with the fake worker, in a folder of its own."""

    def __init__(self, folder):
        self.journal = folder / "journal.jsonl"
        self.log = folder / "log"
        self.log.touch()

    def arguments(self, *more, shapes="64x256"):
        return [
            "--worker", *FAKE.split(), "sweep", "--shapes", shapes, "--dtype", "f32",
            "--direction", "forward", "--journal", self.journal, *more,
        ]  # fmt: skip

    def env(self, plan, **more):
        return {"FAKE_PLAN": json.dumps(plan), "FAKE_LOG": str(self.log), **more}

    def run(self, plan, *more, shapes="64x256", **env):
        return tune(*self.arguments(*more, shapes=shapes), env=self.env(plan, **env))

    def lines(self, kind):
        lines = [json.loads(line) for line in self.journal.read_text().splitlines()]
        return [line for line in lines if line["type"] == kind]

    def outcomes(self):
        return {line["config"]: line["outcome"] for line in self.lines("candidate")}

    def winner(self):
        (result,) = self.lines("result")
        return result["config"]

    def tries(self):
        return [line[4:] for line in self.log.read_text().splitlines() if line.startswith("try ")]


@pytest.fixture
def sweep(tmp_path):
    return Sweep(tmp_path)


def test_the_fastest_wins_and_the_summary_says_so(sweep):
    result = sweep.run({config(2): 50.0, config(3): 80.0, config(4): 300.0})
    assert result.returncode == 0, result.stderr
    assert sweep.winner() == config(2)
    (line,) = sweep.lines("result")
    assert math.isclose(line["time_us"], 50) and math.isclose(line["default_us"], 100.5)
    assert "1 of 1 cells measured. Over the default: 2.010 x" in result.stdout
    assert "Configs that failed: none" in result.stdout
    assert "\r" not in result.stderr


def test_a_gain_within_the_twins_gap_is_none(sweep):
    assert sweep.run({config(2): 96.0}, FAKE_NOISE="0.05").returncode == 0
    assert sweep.winner() == DEFAULT


@pytest.mark.parametrize(
    "behaviour, outcome",
    [
        ("crash", "crash"),
        ("exit", "crash"),
        ("garbage", "garbage"),
        ("two_lines", "garbage"),
        ("wrong", "wrong"),
        ("invalid", "invalid"),
        ("launch_failed", "launch failed"),
        ("zero", "garbage"),
        ("negative", "garbage"),
        ("nan", "garbage"),
    ],
)
def test_a_bad_config_is_an_outcome_not_the_end(sweep, behaviour, outcome):
    result = sweep.run({config(2): behaviour, config(3): 80.0})
    assert result.returncode == 0, result.stderr
    assert sweep.outcomes() == {config(2): outcome, config(3): "ok"}
    assert sweep.winner() == config(3)
    assert f"1 {outcome}" in result.stdout
    # Suspicious ones are tried once more, alone.
    assert sweep.tries().count(config(2)) == (1 if behaviour == "invalid" else 2)


def test_a_hang_is_ended_by_the_limit(sweep):
    begin = time.monotonic()
    assert sweep.run({config(2): "hang", config(3): 80.0}).returncode == 0
    assert 40 <= time.monotonic() - begin < 120  # 20 s, twice
    assert sweep.outcomes() == {config(2): "hang", config(3): "ok"}


def test_a_config_that_fails_once_gets_another_chance(sweep):
    assert sweep.run({config(2): "once:crash"}).returncode == 0
    (line,) = sweep.lines("candidate")
    assert line["outcome"] == "ok" and line["first"]["outcome"] == "crash"
    assert "signal 11" in line["first"]["reason"]


def test_a_config_that_fails_in_the_race_is_out(sweep):
    assert sweep.run({config(2): "race:crash", config(3): 80.0}).returncode == 0
    assert sweep.winner() == config(3)
    assert sweep.outcomes()[config(2)] == "crash"


def test_a_default_that_fails_ends_the_sweep(sweep):
    result = sweep.run({DEFAULT: "wrong", config(2): 50.0}, shapes="64x256,8x8")
    assert result.returncode == 1
    assert "the default itself" in result.stderr and "so said" in result.stderr
    assert sweep.tries() == [DEFAULT] * 3


@pytest.mark.parametrize(
    "start, words", [("die", "exit code 7"), ("garbage", "garbage"), ("old", "another protocol")]
)
def test_a_worker_that_does_not_start(sweep, start, words):
    result = sweep.run({}, FAKE_START=start)
    assert result.returncode == 1 and words in result.stderr
    assert not sweep.journal.exists()


def test_a_worker_that_is_no_program(sweep):
    result = tune(
        "--worker", "/no/such/program", "sweep", "--shapes", "8x8", "--journal", sweep.journal
    )
    assert result.returncode == 1 and "exit code 127" in result.stderr


def test_resume_after_kill_repeats_nothing(sweep):
    plan = {config(parts): 100.0 - parts for parts in range(2, 12)}
    process = subprocess.Popen(
        [TUNE, *map(str, sweep.arguments())],
        env={**os.environ, **sweep.env(plan, FAKE_SLEEP="0.1")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while sweep.log.read_text().count("try ") < 5 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished = set(sweep.outcomes())
    assert 0 < len(finished) < len(plan)
    with sweep.journal.open("a") as file:
        file.write('{"type": "candidate", "sess')  # what a kill in the middle of a write leaves
    before = len(sweep.tries())
    assert sweep.run(plan).returncode == 2  # an existing journal wants --resume
    result = sweep.run(plan, "--resume")
    assert result.returncode == 0, result.stderr
    again = sweep.tries()[before:]
    assert not finished & set(again)
    assert set(sweep.outcomes()) == set(plan)
    assert sweep.winner() == config(11)
    # Once more: the cell is done.
    before = len(sweep.tries())
    assert "done before" in sweep.run(plan, "--resume").stderr
    assert len(sweep.tries()) == before


def test_interrupt_ends_with_130_and_keeps_what_was_measured(sweep):
    plan = {config(parts): 100.0 for parts in range(2, 40)}
    process = subprocess.Popen(
        [TUNE, *map(str, sweep.arguments())],
        env={**os.environ, **sweep.env(plan, FAKE_SLEEP="0.1")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while sweep.log.read_text().count("try ") < 4:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "--resume goes on" in err and "0 of 1 cells" in out
    assert len(sweep.outcomes()) >= 2


def test_another_build_is_another_session(sweep):
    assert sweep.run({config(2): 50.0}).returncode == 0
    assert sweep.run({config(2): 200.0}, "--resume", FAKE_BUILD="other").returncode == 0
    assert len({line["session"] for line in sweep.lines("result")}) == 2
    result = tune("promote", sweep.journal, "--output", sweep.journal.with_suffix(".csv"))
    assert result.returncode == 2
    assert "different devices, builds or methods" in result.stderr


def test_the_budget_leaves_cells_for_later(sweep):
    plan = {config(parts): 100.0 for parts in range(2, 60)}
    result = sweep.run(plan, "--budget", 3, shapes="64x256,8x8", FAKE_SLEEP="0.2")
    assert result.returncode == 0
    results = sweep.lines("result")
    assert results and not any(line["complete"] for line in results)
    assert len(sweep.outcomes()) < 40


@pytest.mark.parametrize(
    "args, words",
    [
        (["sweep", "--shapes", "0x5"], "0x5"),
        (["sweep", "--shapes", "axb"], "axb"),
        (["sweep", "--dtype", "int8"], "int8"),
        (["sweep", "--direction", "up"], "up"),
        (["sweep", "--device", "tpu"], "tpu"),
        (["sweep", "--budget", "-1"], "budget"),
        (["promote", "/no/such/journal"], "/no/such/journal"),
        (["verify", "--table", "/no/such/table"], "/no/such/table"),
        (["status", "--table", "/no/such/table"], "/no/such/table"),
        (["explain"], "shapes"),
        ([], "subcommand"),
    ],
)
def test_bad_input_is_refused_in_one_line(tmp_path, args, words):
    result = subprocess.run(
        [TUNE, *args], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode in (1, 2), result
    assert words in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_explain_names_choice_floor_and_refusals():
    result = tune("explain", "64x256,1x100000", "--dtype", "f32")
    assert result.returncode == 0, result.stderr
    for word in ("floor", "chosen", "source=default", "cpu_backward_two_kernel", "MB", "us"):
        assert word in result.stdout


def test_explain_knows_gpus_that_are_not_here():
    for device, variant in (("sm_90", "gpu_backward_ring"), ("MI350X", "gpu_forward_row")):
        result = tune("explain", "2304x16384", "--device", device)
        assert result.returncode == 0, result.stderr
        assert "chosen" in result.stdout and variant in result.stdout
        assert "gpu_forward_stream" in result.stdout and "cpu_" not in result.stdout
    assert tune("explain", "8x8", "--device", "sm_10").returncode == 2


def test_a_real_sweep_promote_verify_status_and_use(tmp_path):
    journal, table = tmp_path / "j.jsonl", tmp_path / "t.csv"
    result = tune(
        "sweep", "--device", "cpu", "--shapes", "64x256,33x769", "--dtype", "f32",
        "--budget", 60, "--journal", journal, timeout=600,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "4 of 4 cells measured" in result.stdout
    candidates = [json.loads(line) for line in journal.read_text().splitlines()]
    candidates = [c for c in candidates if c["type"] == "candidate"]
    assert candidates and all(c["outcome"] == "ok" for c in candidates), candidates
    assert all(0 < c["worst"] <= 1 for c in candidates)

    result = tune("promote", journal, "--output", table, "--allow-dirty")
    assert result.returncode == 0, result.stderr
    before = table.read_text()
    assert before.count("\nforward,") == 2 and before.count("\nbackward,") == 2
    # Again: the same rows. Into a table of another architecture, or of a broken file: refused.
    assert tune("promote", journal, "--output", table, "--allow-dirty").returncode == 0
    assert table.read_text() == before
    other = tmp_path / "other.csv"
    other.write_text(re.sub(r"arch=\S+", "arch=sm_90", before, count=1))
    result = tune("promote", journal, "--output", other, "--allow-dirty")
    assert result.returncode == 2 and "sm_90" in result.stderr

    # A cell where the budget left time for the default alone is no result.
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    last = [line for line in lines if line["type"] == "result"][-1]
    last["tried"] = 0
    short, fewer = tmp_path / "short.jsonl", tmp_path / "fewer.csv"
    short.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = tune("promote", short, "--output", fewer, "--allow-dirty")
    assert result.returncode == 0 and "1 cells were left out" in result.stdout, result.stderr
    assert len(fewer.read_text().splitlines()) == len(before.splitlines()) - 1

    result = tune("status", "--table", table)
    assert result.returncode == 0 and "4 rows, 0 stale" in result.stdout
    stale = tmp_path / "stale.csv"
    stale.write_text(re.sub(r",[0-9a-f]{16}\n", ",0000000000000000\n", before))
    result = tune("status", "--table", stale)
    assert result.returncode == 1 and "4 rows, 4 stale" in result.stdout

    result = tune("verify", "--table", table)
    assert "4 rows of" in result.stdout and "wrong" not in result.stdout

    result = tune("explain", "64x256", "--dtype", "f32", env={"HIPNORM_CONFIG_FILE": str(table)})
    assert result.stdout.count("source=table") == 2, result.stdout
