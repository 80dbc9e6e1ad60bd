"""readme_test.py: the code blocks of README.md are the files that the tests run.

A block that follows the line `<!-- FILE -->` has to be FILE's text, to the letter.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXPECTED = {"examples/layer_norm.cpp", "examples/layer_norm.py", "examples/CMakeLists.txt"}

blocks = dict(
    re.findall(
        r"^<!-- (\S+) -->\n+```\w*\n(.*?)^```$",
        (ROOT / "README.md").read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
)
problems = []
if set(blocks) != EXPECTED:
    problems.append(f"expected the blocks {sorted(EXPECTED)}, found {sorted(blocks)}")
for name, text in blocks.items():
    if (ROOT / name).read_text(encoding="utf-8") != text:
        problems.append(f"the block {name} differs from the file; copy the file into README.md")
if problems:
    sys.exit("README.md: " + "; ".join(problems))
