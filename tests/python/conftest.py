"""Loads the library that HIPNORM_LIBRARY names; ctest sets it."""

import os

import pytest
import torch

LIBRARY = os.environ.get("HIPNORM_LIBRARY")
if not LIBRARY or not os.path.exists(LIBRARY):
    raise pytest.UsageError(
        f"HIPNORM_LIBRARY must be the path of libhipnorm.so, but is {LIBRARY!r}"
    )
torch.ops.load_library(LIBRARY)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
