"""The file that carries a version of the weights: complete or invisible, and checked before it is loaded."""

from __future__ import annotations

import shutil
import tempfile
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlvr.engine import update_file
from rlvr.errors import TrainingError, UserError
from rlvr.records import WeightUpdate

torch = pytest.importorskip("torch")

EXPECTED = {"a.weight": (2, 3), "b.bias": (4,)}


@pytest.fixture
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as opened:
        yield opened


def tensors() -> dict[str, object]:
    return {"a.weight": torch.arange(6.0).reshape(2, 3), "b.bias": torch.zeros(4)}


def test_what_was_written_is_what_is_expected(folder: str) -> None:
    update = update_file.write_update(folder, 3, tensors())
    update_file.verify(update, EXPECTED, "float32")
    assert update.version == 3
    assert [path.name for path in Path(folder).iterdir()] == ["weights-3.safetensors"]


def test_values_survive_bit_by_bit(folder: str) -> None:
    from safetensors.torch import load_file

    value = torch.randn(2, 3, dtype=torch.bfloat16)
    update = update_file.write_update(folder, 1, {"a.weight": value.T})
    assert torch.equal(load_file(update.path)["a.weight"], value.T)


def test_discarding_twice_is_fine(folder: str) -> None:
    update = update_file.write_update(folder, 1, tensors())
    update_file.discard(update)
    update_file.discard(update)
    assert list(Path(folder).iterdir()) == []


def test_a_failed_write_leaves_nothing(folder: str) -> None:
    shared = torch.zeros(4)
    with pytest.raises(RuntimeError):
        update_file.write_update(folder, 1, {"a": shared, "b": shared})
    assert list(Path(folder).iterdir()) == []


def test_too_little_shared_memory_is_said_before_writing(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", ["total", "used", "free"])
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(100, 90, 10))
    with pytest.raises(UserError, match="--shm-size"):
        update_file.write_update(folder, 1, tensors())
    assert list(Path(folder).iterdir()) == []


def test_every_difference_is_named() -> None:
    problems = update_file.differences(
        {"a.weight": (3, 2), "c": (1,)}, {"a.weight": "float32", "c": "float32"}, EXPECTED, "float32"
    )
    assert problems == [
        "b.bias is missing",
        "c is not a parameter of the model",
        "a.weight has shape [3, 2] instead of [2, 3]",
    ]


def test_another_dtype_is_a_difference() -> None:
    shapes = {"a.weight": (2, 3), "b.bias": (4,)}
    dtypes = {"a.weight": "float32", "b.bias": "bfloat16"}
    assert update_file.differences(shapes, dtypes, EXPECTED, "float32") == ["b.bias is bfloat16 instead of float32"]


def test_a_file_of_another_version_is_refused(folder: str) -> None:
    update = update_file.write_update(folder, 3, tensors())
    with pytest.raises(TrainingError, match="version is '3'"):
        update_file.verify(WeightUpdate(4, update.path), EXPECTED, "float32")


def test_many_problems_are_summed_up(folder: str) -> None:
    update = update_file.write_update(folder, 1, {f"x{i}": torch.zeros(1) for i in range(9)})
    with pytest.raises(TrainingError, match="and 6 more"):
        update_file.verify(update, EXPECTED, "float32")


@pytest.mark.parametrize("content", [None, b"", b"not safetensors"])
def test_an_unreadable_file_is_a_training_error(folder: str, content: bytes | None) -> None:
    path = Path(folder) / "weights-1.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TrainingError, match="cannot be read"):
        update_file.verify(WeightUpdate(1, str(path)), EXPECTED, "float32")
