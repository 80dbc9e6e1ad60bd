"""What cmake/bootstrap.sh does on machines that lack something: its functions, sourced in a shell
whose PATH holds only what the test puts there. Nothing is installed: apt-get and sudo are stand-ins
that write down how they were called."""

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What bootstrap.sh takes for granted on Debian and Ubuntu.
TOOLS = "bash cat cut dirname env grep realpath sed sh sha256sum sort".split()
NOBODY = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
MISSING = "g++ cmake ninja-build"
COMMAND = f"apt-get update && apt-get install -y --no-install-recommends {MISSING}"


@pytest.fixture
def machine():
    """A folder that every user can read: bin/ for the PATH, and a copy of cmake/."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "bin").mkdir()
        for tool in TOOLS:
            (folder / "bin" / tool).symlink_to(shutil.which(tool))
        shutil.copytree(ROOT / "cmake", folder / "cmake")
        (folder / "calls").touch()
        (folder / "calls").chmod(0o666)
        yield folder


def stand_in(machine, name, body=""):
    """A program that writes down its arguments and what it was asked to do, then runs `body`."""
    path = machine / "bin" / name
    path.write_text(f'#!/bin/sh\necho "{name} $*" >>"{machine}/calls"\n{body}\n')
    path.chmod(0o755)


def python_without_torch(machine):
    """A python3 that answers as one of another prefix than Debian's, without any packages."""
    stand_in(machine, "python3", 'case "$*" in *sys.base_prefix*) echo /opt ;; *) exit 1 ;; esac')


def shell(machine, commands, variables=None, **options):
    return subprocess.run(
        ["bash", "-c", f'source "{machine}/cmake/bootstrap.sh"; set -eu; {commands}'],
        env={"PATH": str(machine / "bin"), "LC_ALL": "C", **(variables or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd="/",
        **options,
    )


# The headers' packages depend on what this machine has: they are left out.
INSTALL = (
    "preset=cpu base_python=python3; find_missing bench;"
    'for i in "${!missing[@]}"; do [[ ${missing[i]} != lib* && ${missing[i]} != nlohmann* ]] ||'
    " unset missing[i]; done; install_missing; echo done"
)


def test_without_root_and_sudo_it_names_what_is_missing_and_stops(machine):
    python_without_torch(machine)
    stand_in(machine, "apt-get")
    result = shell(machine, INSTALL, **NOBODY)
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr == (
        f"hipnorm: missing here: {MISSING}. This is not root and cannot use sudo. As root: {COMMAND}\n"
    )
    assert "apt-get" not in (machine / "calls").read_text()


def test_a_sudo_that_would_ask_for_a_password_is_not_used_without_a_terminal(machine):
    python_without_torch(machine)
    stand_in(machine, "apt-get")
    stand_in(machine, "sudo", "exit 1")
    result = shell(machine, INSTALL, **NOBODY)
    assert result.returncode == 1 and "cannot use sudo" in result.stderr
    calls = (machine / "calls").read_text().splitlines()
    assert [call for call in calls if not call.startswith("python3")] == ["sudo -n true"]


def test_with_sudo_it_says_what_it_runs_and_runs_that(machine):
    python_without_torch(machine)
    stand_in(machine, "apt-get")
    stand_in(machine, "dpkg")
    stand_in(machine, "sudo", '[ "$1" = -n ] || exec "$@"')
    result = shell(machine, INSTALL, **NOBODY)
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr
    assert result.stderr.startswith(f"hipnorm: missing here: {MISSING}. Running sudo {COMMAND}\n")
    calls = (machine / "calls").read_text()
    assert "apt-get update\n" in calls
    assert f"install -y -f --no-install-recommends {MISSING}\n" in calls


def test_an_install_that_fails_stops_it(machine):
    python_without_torch(machine)
    stand_in(machine, "apt-get", '[ "$1" = update ]')
    stand_in(machine, "dpkg")
    stand_in(machine, "sudo", '[ "$1" = -n ] || exec "$@"')
    result = shell(machine, INSTALL, **NOBODY)
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr.endswith("hipnorm: apt-get failed; its messages are above.\n")


def test_a_machine_without_apt_is_told_the_names(machine):
    python_without_torch(machine)
    result = shell(machine, INSTALL)
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr == (
        f"hipnorm: missing here (by Debian's names): {MISSING}. Install them and run again.\n"
    )


def test_a_python_that_is_not_there_is_named(machine):
    result = shell(machine, "preset=cpu base_python=/no/python; find_missing bench; echo done")
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr == "hipnorm: HIPNORM_PYTHON=/no/python is no program here.\n"


CHOOSE = 'base_python=$CHOSEN; choose_python {}; echo "$python|$torch_dir|$venv_reason"'


def torch_folder():
    return os.path.realpath(find_spec("torch").submodule_search_locations[0])


@pytest.mark.parametrize("kind", ["bench", "tests"])
def test_torch_dir_is_taken(machine, kind):
    """By a python that has no torch of its own, too, if it lies in a virtual environment."""
    folder = torch_folder()
    result = shell(machine, CHOOSE.format(kind), {"TORCH_DIR": folder, "CHOSEN": sys.executable})
    assert result.stdout.startswith(f"{sys.executable}|{folder}|"), result.stderr
    python_without_torch(machine)
    result = shell(machine, CHOOSE.format(kind), {"TORCH_DIR": folder, "CHOSEN": "python3"})
    if kind == "bench":
        assert result.stdout == f"python3|{folder}|\n", result.stderr
    elif (venv := Path(folder).parents[3] / "bin" / "python3").exists():
        assert os.path.samefile(result.stdout.split("|")[0], venv), result.stderr


@pytest.mark.parametrize("kind", ["bench", "tests"])
@pytest.mark.parametrize("name", ["/no/such/folder", "{machine}/cmake"])
def test_torch_dir_without_torch_is_refused(machine, kind, name):
    python_without_torch(machine)
    folder = name.format(machine=machine)
    result = shell(machine, CHOOSE.format(kind), {"TORCH_DIR": folder, "CHOSEN": "python3"})
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr == (
        f"hipnorm: TORCH_DIR={folder} holds no torch: lib/libtorch_cpu.so is not there. TORCH_DIR is"
        " the folder with torch's include/ and lib/.\n"
    )


def test_a_torch_dir_that_no_python_imports_is_refused_for_the_tests(machine):
    python_without_torch(machine)
    (machine / "torch" / "lib").mkdir(parents=True)
    (machine / "torch" / "lib" / "libtorch_cpu.so").touch()
    variables = {"TORCH_DIR": str(machine / "torch"), "CHOSEN": "python3"}
    result = shell(machine, CHOOSE.format("tests"), variables)
    assert result.returncode == 1 and result.stdout == ""
    assert f"imports the torch in TORCH_DIR={machine}/torch; python3 does not" in result.stderr
    result = shell(machine, CHOOSE.format("bench"), variables)
    assert result.stdout == f"python3|{machine}/torch|\n", result.stderr
