"""Tests that need a GPU. HIPNORM_LIBRARY names the library. Without a GPU nothing is run, and the
exit code is 77, or with HIPNORM_REQUIRE_GPU=1 it is 1."""

import os
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

LIBRARY = os.environ.get("HIPNORM_LIBRARY")
if not LIBRARY or not os.path.exists(LIBRARY):
    raise pytest.UsageError(
        f"HIPNORM_LIBRARY must be the path of libhipnorm.so, but is {LIBRARY!r}"
    )
torch.ops.load_library(LIBRARY)


def pytest_configure(config):
    config.addinivalue_line("markers", "big: takes tens of gigabytes of the GPU's memory")


def pytest_sessionstart():
    if torch.cuda.is_available():
        torch.set_default_device("cuda")
        return
    required = os.environ.get("HIPNORM_REQUIRE_GPU") == "1"
    pytest.exit(
        "HIPNORM_REQUIRE_GPU=1, but torch sees no GPU" if required else "torch sees no GPU",
        returncode=1 if required else 77,
    )


@pytest.fixture(autouse=True)
def clean(request):
    torch.manual_seed(0)
    yield
    torch.cuda.synchronize()
    if request.node.get_closest_marker("big"):
        torch.cuda.empty_cache()
