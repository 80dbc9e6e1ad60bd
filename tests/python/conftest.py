"""Loads the library that HIPNORM_LIBRARY names, and makes the device that HIPNORM_TEST_DEVICE names
(cpu or cuda) the one on which tensors are made; ctest sets both."""

import os

# What torch.compile has traced it keeps on disk, by the program's text: with that, a test would pass
# on what an earlier library's meta kernels had answered. torch reads these when it is imported.
os.environ["TORCHINDUCTOR_AUTOGRAD_CACHE"] = "0"
os.environ["TORCHINDUCTOR_FX_GRAPH_CACHE"] = "0"

import pytest
import torch
from reference import DEVICE

LIBRARY = os.environ.get("HIPNORM_LIBRARY")
if not LIBRARY or not os.path.exists(LIBRARY):
    raise pytest.UsageError(
        f"HIPNORM_LIBRARY must be the path of libhipnorm.so, but is {LIBRARY!r}"
    )
torch.ops.load_library(LIBRARY)


def pytest_sessionstart():
    if DEVICE.type == "cpu":
        return
    if not torch.cuda.is_available():
        required = os.environ.get("HIPNORM_REQUIRE_GPU") == "1"
        pytest.exit(
            "HIPNORM_REQUIRE_GPU=1, but torch sees no GPU" if required else "torch sees no GPU",
            returncode=1 if required else 77,  # SKIP_RETURN_CODE in CMakeLists.txt
        )
    torch.set_default_device(DEVICE)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
