"""A ROCm build where there is no GPU: the library loads beside any torch and serves the CPU, and
what needs a GPU says that there is none. load_test.py LIBRARY TUNE"""
import pathlib
import subprocess
import sys
import tempfile

import torch

library, tune = sys.argv[1:]
torch.ops.load_library(library)
x = torch.randn(4, 64)
y = torch.ops.hipnorm.layer_norm(x, [64])
torch.testing.assert_close(y, torch.nn.functional.layer_norm(x, [64]))

if torch.cuda.is_available():
    sys.exit(0)
with tempfile.TemporaryDirectory() as folder:
    result = subprocess.run([tune, "sweep", "--device", "gpu", "--shapes", "4x64", "--budget", "1",
                             "--journal", pathlib.Path(folder) / "journal.jsonl"],
                            capture_output=True, text=True, check=False)
assert result.returncode != 0, result
assert "there is no GPU to be used" in result.stderr + result.stdout, result
