"""hipnorm-tune's other commands on the command line: bad input, explain, what the program links."""

import re
import shutil
import subprocess

import pytest
from driver import ROOT, TUNE, tune


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
        (["explain", "8x8", "--device", "sm_10"], "sm_10"),
        (["regret"], "journal"),
        (["regret", "/no/such/journal"], "/no/such/journal"),
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


def explained(text):
    """The lines of an explanation by cell: {cell: [(what, rest), ...]}."""
    cells = {}
    for line in text.splitlines():
        if not line.startswith(" "):
            lines = cells.setdefault(line.split(" on ")[0], [])
        elif re.match(r"  \w", line):
            lines.append((line[2:12].strip(), line[12:].strip()))
    return cells


def test_explain_names_floor_choice_runners_up_and_refusals():
    result = tune("explain", "64x256,2304x36864", "--dtype", "f32", "--device", "MI210")
    assert result.returncode == 0, result.stderr
    cells = explained(result.stdout)
    assert list(cells) == [
        f"{op} f32 weight=f32 bias=1 {shape}"
        for shape in ("64x256", "2304x36864") for op in ("forward", "backward")
    ]  # fmt: skip
    for cell, lines in cells.items():
        words = [what for what, _ in lines]
        assert words[:2] == ["floor", "chosen"]
        assert 1 <= words.count("runner-up") <= 5
        cost = r"(\S+) us +(\S+) MB  "
        chosen = re.match(cost + r"gpu_\w+:\S+  source=default", lines[1][1])
        last = float(chosen[1])
        for what, rest in lines:
            if what == "runner-up":  # by their predictions
                found = re.match(cost + r"gpu_\w+:\S+$", rest)
                assert float(found[1]) >= last
                last = float(found[1])
        refused = dict(rest.split(": ", 1) for what, rest in lines if what == "refused")
        variant = f"gpu_{cell.split()[0]}_ring"
        assert refused[variant] == f"{variant} needs bulk copies to LDS, which gfx90a does not have"
        if cell.startswith("backward") and "36864" in cell:  # faster, and yet not chosen
            (group,) = [rest for what, rest in lines if what == "on request"]
            assert float(re.match(cost + "gpu_backward_group:", group)[1]) < float(chosen[1])
        if "36864" in cell:
            wave = refused[f"gpu_{cell.split()[0]}_wave"]
            assert "36864 cols are 9216 packets" in wave, wave
    assert "cpu_" not in result.stdout


def rows_of_the_page():
    """(device, shape, direction) → (config, MB, us), as docs/rocm-choices.md has them."""
    rows, device = {}, None
    for line in (ROOT / "docs" / "rocm-choices.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            device = line[3:]
        elif match := re.match(r"\| (\d+x\d+) \| (\w+) \| `(\S+)` \| (\S+) \| (\S+) \|", line):
            rows[device, match[1], match[2]] = match.groups()[2:]
    return rows


@pytest.mark.parametrize("device", ["MI210", "MI250X", "MI300X", "MI350X"])
def test_explain_says_what_the_page_of_amd_choices_says(device):
    result = tune("explain", "seed", "--dtype", "bf16", "--device", device)
    assert result.returncode == 0, result.stderr
    said = {}
    for cell, lines in explained(result.stdout).items():
        direction, *_, shape = cell.split()
        us, _, mb, _, config, source = dict(lines)["chosen"].split()
        assert source == "source=default"
        said[device, shape, direction] = (config, mb, us)
    page = {key: row for key, row in rows_of_the_page().items() if key[0] == device}
    assert len(page) == 12 and said == page


def test_explain_knows_the_cpu_and_gpus_that_are_not_here():
    result = tune("explain", "64x256,1x100000", "--dtype", "f32")
    assert result.returncode == 0, result.stderr
    for word in ("floor", "chosen", "source=default", "cpu_backward_two_kernel"):
        assert word in result.stdout
    result = tune("explain", "2304x16384", "--device", "sm_90")
    assert result.returncode == 0, result.stderr
    assert "gpu_backward_ring" in result.stdout and "cpu_" not in result.stdout
    assert "source=table" in result.stdout or "source=near" in result.stdout  # shipped


def test_it_needs_no_torch():
    """What is built here runs where there is neither torch nor Python."""
    readelf = shutil.which("readelf")
    if readelf is None:
        pytest.skip("no readelf")
    text = subprocess.run([readelf, "-d", TUNE], capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", text)
    assert any(name.startswith("libc.so") for name in needed), text
    for name in needed:
        assert not re.search("torch|c10|python", name), needed
    assert not re.search(r"\((RPATH|RUNPATH)\).*torch", text), text
