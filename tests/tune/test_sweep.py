"""hipnorm-tune sweep, with a worker that misbehaves, killed and resumed."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from driver import CELL, DEFAULT, ROOT, TUNE, Sweep, config, environment, tune

sys.path.append(str(ROOT / "tests"))
from terminal import run_on_a_terminal


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


def reasons(sweep):
    return {line["config"]: line.get("reason", "") for line in sweep.lines("candidate")}


def test_a_hang_is_ended_by_the_limit(sweep):
    begin = time.monotonic()
    assert sweep.run({config(2): "hang", config(3): 80.0}).returncode == 0
    took = time.monotonic() - begin
    assert sweep.outcomes() == {config(2): "hang", config(3): "ok"}
    # 20 s, twice; more where this machine was so busy that the default's try took 0.4 s.
    limit = float(re.fullmatch(r"no answer in (\S+) s", reasons(sweep)[config(2)])[1])
    assert limit >= 20 and 2 * limit <= took < 2 * limit + 60


def test_the_limit_is_fifty_times_what_the_default_takes(sweep):
    plan = {config(2): "hang", config(3): 80.0}
    result = sweep.run(plan, "--least-limit", "0.5", FAKE_SLEEP="0.1")
    assert result.returncode == 0, result.stderr
    assert sweep.outcomes() == {config(2): "hang", config(3): "ok"}
    limit = float(re.fullmatch(r"no answer in (\S+) s", reasons(sweep)[config(2)])[1])
    assert 5 <= limit < 20  # the default's try took 0.1 s, and a bit


def test_a_hang_in_a_race_puts_its_config_out(sweep):
    plan = {config(2): "race:hang", config(3): 80.0}
    assert sweep.run(plan, "--least-limit", "1").returncode == 0
    assert sweep.winner() == config(3)
    assert sweep.outcomes() == {config(2): "crash", config(3): "ok"}
    assert reasons(sweep)[config(2)] == "failed in a race"


def test_the_winner_is_confirmed_in_a_fresh_worker(sweep):
    assert sweep.run({config(2): 50.0, config(3): 80.0}).returncode == 0
    log = sweep.logged()
    racers = f"race {DEFAULT} {config(2)} {config(3)} {DEFAULT}"
    assert log[-3:] == ["start", f"cell {CELL}", racers]  # the final
    assert log[:-3].count(racers) == 1 and log.count("start") == 2
    # A config that was fast in the process before, and is no more, does not win.
    (sweep.folder / "again").mkdir()
    again = Sweep(sweep.folder / "again")
    result = again.run({config(2): "first:50", config(3): 80.0})
    assert result.returncode == 0 and again.winner() == config(3)


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
    "start, words",
    [
        ("die", "exit code 7"),
        ("garbage", "garbage"),
        ("old", "another protocol"),
        ("mute", "no answer in 1 s"),
    ],
)
def test_a_worker_that_does_not_start(sweep, start, words):
    result = sweep.run({}, "--hello-limit", "1", FAKE_START=start)
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


@pytest.mark.parametrize("what", ["FAKE_BUILD", "FAKE_ARCH", "FAKE_NAME", "FAKE_UNITS", "method"])
def test_another_build_device_or_method_is_another_session(sweep, what):
    assert sweep.run({config(2): 50.0}).returncode == 0
    more = {what: "7"}
    if what == "method":  # as a program of another method would have left it
        more = {}
        sweep.edit(lambda line: line.update(session="0" * 16))
        sweep.edit(lambda line: line.update(method=1) if line["type"] == "session" else None)
    before = len(sweep.tries())
    assert sweep.run({config(2): 200.0}, "--resume", **more).returncode == 0
    assert len(sweep.tries()) == before + 2  # nothing of the other session counts
    first, second = sweep.lines("session")
    assert first["session"] != second["session"]
    assert [line["config"] for line in sweep.lines("result")] == [config(2), DEFAULT]
    # Back to the first: its results are still there.
    if what != "method":
        assert "done before" in sweep.run({config(2): 50.0}, "--resume").stderr
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


def test_the_summary_counts_failures_from_before_a_resume(sweep):
    plan = {config(2): "crash", config(3): "wrong", config(4): "crash", config(5): 80.0}
    result = sweep.run(plan, shapes="64x256,8x8")
    assert "Configs that failed: 4 crash, 2 wrong." in result.stdout
    result = sweep.run(plan, "--resume", shapes="64x256,8x8")
    assert "done before" in result.stderr
    assert "Configs that failed: 4 crash, 2 wrong." in result.stdout
    # Those of cells that nobody asks for are not counted.
    result = sweep.run(plan, "--resume", shapes="8x8")
    assert "Configs that failed: 2 crash, 1 wrong." in result.stdout


def on_a_terminal(sweep, plan, *more, **env):
    """What a sweep shows on standard error where that is a terminal."""
    shown, stdout = run_on_a_terminal(
        [TUNE, *map(str, sweep.arguments(*more))], environment(sweep.env(plan, **env))
    )
    assert "\r" not in stdout
    return shown.decode()


def test_progress_and_time_left_on_a_terminal(sweep):
    plan = {config(parts): 100.0 / parts for parts in range(2, 8)}
    shown = on_a_terminal(sweep, plan, FAKE_SLEEP="0.2")
    lines = re.findall(
        r"\r\x1b\[K\[1/1\] forward f32 [^:]*64x256: (\d)/6 configs, best (\S+) x, (\d+) s left",
        shown,
    )
    assert [int(n) for n, _, _ in lines] == [1, 2, 3, 4, 5, 6]
    assert [best for _, best, _ in lines] == ["2.000", "3.000", "4.000", "5.000", "6.000", "7.000"]
    left = [int(s) for _, _, s in lines]
    assert left == sorted(left, reverse=True) and left[-1] == 0 and left[0] >= 1
    # The result takes the place of the progress.
    assert re.search(r"\r\x1b\[K\[1/1\] [^\r]*: cpu_forward_row\S+ 14.3 us", shown)


def test_time_left_of_a_budget_on_a_terminal(sweep):
    shown = on_a_terminal(sweep, {config(2): 50.0}, "--budget", "30")
    assert re.search(r"1/1 configs, best 2.000 x, 0 s left of the cell, (29|30) s of all", shown)


def test_a_journal_that_cannot_be_written(sweep):
    for journal in ("/no/such/folder/journal.jsonl", sweep.folder):
        arguments = sweep.arguments("--resume")
        arguments[arguments.index(sweep.journal)] = journal
        result = tune(*arguments, env=sweep.env({config(2): 50.0}))
        assert result.returncode == 1
        assert str(journal) in result.stderr.splitlines()[-1]
        assert sweep.tries() == []  # before anything is measured


def test_lists_of_shapes(sweep):
    # Hidden sizes × rows, without those of more than 2^30 elements; the same shape once.
    result = sweep.run({}, "--budget", "0.001", shapes="grid,128x4096,1x128")
    counted = re.search(r"of (\d+) cells", result.stdout)
    grid = {(r, c) for r in (1, 16, 128, 1024, 8192, 65536)
            for c in (128, 768, 769, 1024, 1600, 2048, 2560, 3072, 4096, 5120, 6144, 7168, 8192,
                      12288, 16384, 18432, 50257) if r * c <= 2**30}  # fmt: skip
    assert int(counted[1]) == len(grid)
    result = sweep.run({}, "--budget", "0.001", "--resume", shapes="llm,seed,llm")
    assert int(re.search(r"of (\d+) cells", result.stdout)[1]) == 13 + 6
