import pytest
from driver import Sweep


@pytest.fixture
def sweep(tmp_path):
    return Sweep(tmp_path)
