"""The checks refuse the kernels of failing.hip: failing_test.py OBJECT OBJDUMP"""
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
SPILLING = "backward_row_kernel<float, 1, false, false>"
NARROW = "forward_row_kernel<float, 1, false, true>"
FENCED = "forward_wave_kernel<float, 1, true>"


def run(check, *arguments):
    command = [sys.executable, HERE / check, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def expect(result, kernel, complaint):
    """On every architecture that the object has, the kernel's line complains of this."""
    lines = [line for line in result.stdout.splitlines() if line.startswith(kernel)]
    assert lines, f"{kernel} is not listed:\n{result.stdout}{result.stderr}"
    for line in lines:
        assert re.search(complaint, line), f"expected '{complaint}' in: {line}"


def main():
    file, objdump = sys.argv[1:]
    resources = run("check_resources.py", file, "--strict")
    assert resources.returncode == 1, resources
    expect(resources, SPILLING, r"<-- \d+ VGPR spills.*<-- \d+ bytes of scratch")
    assert not re.search(rf"{re.escape(NARROW)}.*<--", resources.stdout), resources.stdout
    assert run("check_resources.py", file).returncode == 0, "without --strict it only warns"

    code = run("check_code.py", file, "--strict", "--objdump", objdump)
    assert code.returncode == 1, code
    expect(code, NARROW, r"<-- 0 16-byte loads in the hot loop, expected 1")
    expect(code, NARROW, r"<-- 0 16-byte stores in the hot loop, expected 1")
    expect(code, FENCED, r"<-- \d+ cache fences")
    assert run("check_code.py", file, "--objdump", objdump).returncode == 0
    print("refused, as they should be")


main()
