"""openmp_test.py path/to/libhipnorm.so: Python with torch and hipnorm has one OpenMP runtime.

Two would mean two pools of threads, one of which torch.set_num_threads does not reach.
"""
import re
import sys

import torch

torch.ops.load_library(sys.argv[1])
x = torch.randn(64, 4096)
y = torch.ops.hipnorm.layer_norm(x, [4096])
torch.testing.assert_close(y, torch.nn.functional.layer_norm(x, [4096]))

with open("/proc/self/maps") as maps:
    paths = {line.split(maxsplit=5)[5].strip() for line in maps if "/" in line}
runtimes = sorted(p for p in paths if re.match(r"lib(g|i)?omp", p.rsplit("/", 1)[1]))
if len(runtimes) != 1:
    sys.exit(f"expected one OpenMP runtime in the process, found {runtimes}")
