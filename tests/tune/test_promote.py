"""hipnorm-tune promote and regret, on journals whose times are made up."""

import json
import re

import pytest
from driver import CELL, DEFAULT, config, this_build, tune


@pytest.fixture
def swept(sweep):
    """A sweep by this program, from a clean checkout."""
    result = sweep.run({config(2): 50.0}, FAKE_BUILD=this_build())
    assert result.returncode == 0, result.stderr
    clean = {"commit": "0123456789abcdef", "dirty": False}
    sweep.edit(lambda line: line.update(clean) if line["type"] == "session" else None)
    return sweep


def change_session(sweep, **values):
    sweep.edit(lambda line: line.update(values) if line["type"] == "session" else None)


def promote(sweep, *more):
    return tune("promote", sweep.journal, "--output", sweep.folder / "table.csv", *more)


def test_a_clean_sweep_becomes_a_table(swept):
    result = promote(swept)
    assert result.returncode == 0, result.stderr
    text = (swept.folder / "table.csv").read_text()
    assert text.startswith("# hipnorm configs 1 arch=cpu-test\n# method ")
    assert "commit 0123456789abcdef, 20" in text
    assert f'\nforward,f32,f32,1,256,64,"{config(2)}",50,100.5,2,' in text


@pytest.mark.parametrize(
    "values, words, allowed",
    [
        ({"dirty": True}, "changes that no commit holds", True),
        ({"commit": ""}, "built outside of git", True),
        ({"build": "0" * 64}, "another build's kernels", False),
        ({"method": 1}, "another method (its 1", False),
    ],
)
def test_refused(swept, values, words, allowed):
    change_session(swept, **values)
    result = promote(swept)
    assert result.returncode == 2 and words in result.stderr, result.stderr
    assert not (swept.folder / "table.csv").exists()
    # For a table of one's own: of one's own changes, never of another program's times.
    assert promote(swept, "--allow-dirty").returncode == (0 if allowed else 2)
    assert (swept.folder / "table.csv").exists() == allowed


def test_a_table_of_another_method_is_not_added_to(swept):
    assert promote(swept).returncode == 0
    table = swept.folder / "table.csv"
    old = re.sub(r"# method \d+", "# method 1", table.read_text())
    table.write_text(old)
    result = promote(swept)
    assert result.returncode == 2 and "method 1" in result.stderr, result.stderr
    assert table.read_text() == old


# ---- regret -----------------------------------------------------------------------------------
SHAPES = ["512x256", "2304x16384", "2304x36864", "4608x40920"]


def chosen(shape):
    """This build's default on an H200."""
    result = tune("explain", shape, "--dtype", "f64", "--direction", "forward", "--device", "H100",
                  env={"HIPNORM_CONFIG_FILE": ""})  # fmt: skip
    return re.search(r"chosen .* (gpu_\S+)  source=default", result.stdout)[1]


def journal_of(cells):
    """A session on an H100, and one before it that does not count."""
    session = {
        "type": "session", "session": "a", "arch": "sm_90", "name": "NVIDIA H100 80GB HBM3",
        "driver": "", "compute_units": 132, "build": "b", "method": 1, "commit": "", "dirty": True,
        "started": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    lines = [{**session, "session": "before"}, session]
    for i, (shape, candidates, (winner, default, time)) in enumerate(cells):
        cell = {"cell": f"forward f64 weight=f64 bias=1 {shape}"}
        for session_id in ("before", "a"):
            lines += [
                {"type": "candidate", "session": session_id, **cell, "config": name,
                 "outcome": "ok" if us else "crash", "time_us": us, "default_us": 100.0}
                for name, us in candidates.items()
            ]  # fmt: skip
            lines.append({
                "type": "result", "session": session_id, **cell, "config": winner,
                "default": default, "time_us": time if session_id == "a" else 1.0,
                "default_us": 100.0, "tried": 9, "complete": True,
            })  # fmt: skip
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_regret_looks_todays_default_up(tmp_path):
    today = [chosen(shape) for shape in SHAPES]
    journal = tmp_path / "j.jsonl"
    other, winner = "gpu_forward_stream:threads=64", "gpu_forward_stream:threads=128"
    journal.write_text(
        journal_of([
            (SHAPES[0], {winner: 50.0}, (winner, today[0], 50.0)),  # the default of then: 2 x
            (SHAPES[1], {today[1]: 60.0}, (today[1], other, 60.0)),  # the winner: 1 x
            (SHAPES[2], {today[2]: 99.0, winner: 80.0}, (winner, other, 88.0)),  # 1.125 x
            (SHAPES[3], {winner: 90.0}, (winner, other, 90.0)),  # nobody knows
        ])
    )
    result = tune("regret", journal)
    assert result.returncode == 0, result.stderr
    mean = (2 * 1 * 1.125) ** (1 / 3)
    assert f"of 3 cells takes {mean:.3f} x the best (geometric mean), 2.000 x at worst" in result.stdout
    assert f"{SHAPES[0]}  {today[0]} against {winner}" in result.stdout
    assert "1 cells whose default was not tried, 0 where it failed" in result.stdout
    assert f"not tried: forward f64 weight=f64 bias=1 {SHAPES[3]}  {today[3]}" in result.stdout
    assert tune("regret", journal, "--device", "H100").stdout == result.stdout
    # Another device's default may be another; one without kernels for f64 rows in rings is the same.
    assert tune("regret", journal, "--device", "MI300X").stdout != result.stdout


def test_regret_of_a_default_that_fails(tmp_path):
    journal = tmp_path / "j.jsonl"
    other, winner = "gpu_forward_stream:threads=64", "gpu_forward_stream:threads=128"
    journal.write_text(
        journal_of([(SHAPES[0], {chosen(SHAPES[0]): 0.0}, (winner, other, 50.0))])
    )
    result = tune("regret", journal)
    assert result.returncode == 1 and "0 cells whose default was not tried, 1 where it failed" in result.stdout
    journal.write_text(journal.read_text().replace("sm_90", "sm_91"))
    result = tune("regret", journal)
    assert result.returncode == 2 and "no data sheet" in result.stderr


def test_regret_of_a_sweep(sweep):
    """The journal that a sweep writes is one that regret reads."""
    sweep.run({config(2): 50.0})
    result = tune("regret", sweep.journal, "--device", "cpu")
    assert "Session" in result.stdout and CELL in result.stdout + DEFAULT, result.stderr
