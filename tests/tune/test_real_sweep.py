"""A small sweep of the real kernels on this machine's processor, and what becomes of it."""

import json
import re

from driver import tune


def test_a_real_sweep_promote_verify_status_and_use(tmp_path):
    journal, table = tmp_path / "j.jsonl", tmp_path / "t.csv"
    # Again where a busy machine needs more than the budget, or one of a large cache, all of which is
    # swept before each call (0.3 s with 300 MB), has time for the last cell's default alone.
    for budget, more in (30, []), (60, ["--resume"]), (300, ["--resume"]):
        result = tune(
            "sweep", "--device", "cpu", "--shapes", "64x256", "--dtype", "f32",
            "--budget", budget, "--journal", journal, *more, timeout=600,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        if "2 of 2 cells measured" in result.stdout and "(0 configs tried)" not in result.stdout:
            break
    assert "2 of 2 cells measured" in result.stdout
    candidates = [json.loads(line) for line in journal.read_text().splitlines()]
    candidates = [c for c in candidates if c["type"] == "candidate"]
    assert candidates and all(c["outcome"] == "ok" for c in candidates), candidates
    assert all(0 < c["worst"] <= 1 for c in candidates)

    result = tune("promote", journal, "--output", table, "--allow-dirty")
    assert result.returncode == 0, result.stderr
    before = table.read_text()
    assert before.count("\nforward,") == 1 and before.count("\nbackward,") == 1
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
    assert result.returncode == 0 and "2 rows, 0 stale" in result.stdout
    stale = tmp_path / "stale.csv"
    stale.write_text(re.sub(r",[0-9a-f]{16}\n", ",0000000000000000\n", before))
    result = tune("status", "--table", stale)
    assert result.returncode == 1 and "2 rows, 2 stale" in result.stdout

    result = tune("verify", "--table", table)
    assert "2 rows of" in result.stdout and "wrong" not in result.stdout

    result = tune("explain", "64x256", "--dtype", "f32", env={"HIPNORM_CONFIG_FILE": str(table)})
    assert result.stdout.count("source=table") == 2, result.stdout
