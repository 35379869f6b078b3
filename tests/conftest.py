"""What every test may rely on."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest

from rlvr.launch.machine import visible_gpus

# How long one example takes says more about what else the machine does than about the code.
hypothesis.settings.register_profile("rlvr", deadline=None)
hypothesis.settings.load_profile("rlvr")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout."""
    return ROOT


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if visible_gpus():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no visible NVIDIA GPU"))
