"""Files and folders are whole or absent, damage is found, and a full disk is a clear error."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rlvr.errors import InfrastructureError, UserError
from rlvr.tracking.files import (
    MANIFEST,
    atomic_folder,
    check_free_space,
    is_full_disk,
    read_manifest,
    verify,
    write_atomic,
)


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if (
        mount is None
        or subprocess.run([mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True).returncode
    ):
        pytest.skip("mounting a file system takes root")
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"weights" * 100)
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer" / "vocab.json").write_text("{}")


def test_a_folder_appears_whole_with_its_manifest(tmp_path):
    final = tmp_path / "checkpoints" / "step_3"
    with atomic_folder(final) as folder:
        fill(folder)
        assert not final.exists()
    assert [path.name for path in final.parent.iterdir()] == ["step_3"]
    manifest = read_manifest(final)
    assert set(manifest) == {"model.safetensors", "tokenizer/vocab.json"}
    assert manifest["model.safetensors"].size == 700
    assert verify(final) == []


def test_a_failure_leaves_nothing_and_passes_on(tmp_path):
    older = tmp_path / "step_1"
    with atomic_folder(older) as folder:
        fill(folder)
    with pytest.raises(KeyboardInterrupt), atomic_folder(tmp_path / "step_2") as folder:
        fill(folder)
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["step_1"]
    assert verify(older) == []


def test_an_existing_folder_is_never_overwritten(tmp_path):
    with atomic_folder(tmp_path / "step_1") as folder:
        fill(folder)
    with pytest.raises(UserError, match="exists already"), atomic_folder(tmp_path / "step_1"):
        pass
    assert verify(tmp_path / "step_1") == []


def test_what_a_killed_process_left_is_cleared(tmp_path):
    left = tmp_path / ".step_1.partial"
    left.mkdir()
    (left / "half").write_bytes(b"x")
    with atomic_folder(tmp_path / "step_1") as folder:
        fill(folder)
    assert set(read_manifest(tmp_path / "step_1")) == {"model.safetensors", "tokenizer/vocab.json"}


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_is_the_users_to_mend_and_names_the_space(tmp_path, error):
    with pytest.raises(UserError, match=r"no space left.*free now.*run\.dir"), atomic_folder(tmp_path / "a") as folder:
        fill(folder)
        raise error
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_deep_in_the_chain_of_causes_is_found():
    try:
        try:
            raise OSError(errno.ENOSPC, "full")
        except OSError as cause:
            raise RuntimeError("PytorchStreamWriter failed writing file") from cause
    except RuntimeError as error:
        assert is_full_disk(error)
    assert not is_full_disk(OSError(errno.EIO, "I/O error"))


def test_other_trouble_with_the_disk_is_the_machines(tmp_path):
    with pytest.raises(InfrastructureError, match="Input/output error"), atomic_folder(tmp_path / "a"):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_disk_that_is_really_full(small_disk):
    with atomic_folder(small_disk / "step_1") as folder:
        fill(folder)
    with pytest.raises(UserError, match="no space left"), atomic_folder(small_disk / "step_2") as folder:
        (folder / "model.safetensors").write_bytes(b"x" * 2**21)
    with pytest.raises(UserError, match="no space left"):
        write_atomic(small_disk / "summary.json", b"x" * 2**21)
    assert sorted(path.name for path in small_disk.iterdir()) == ["step_1"]
    assert verify(small_disk / "step_1") == []
    with pytest.raises(UserError, match=r"needs 4\.0 MiB .* but only 1\.0 MiB are free"):
        check_free_space(small_disk / "step_2", 2**22, "the checkpoint")


def test_safetensors_on_a_full_disk(small_disk):
    numpy = pytest.importorskip("numpy")
    safetensors = pytest.importorskip("safetensors.numpy")
    with pytest.raises(UserError, match="no space left"), atomic_folder(small_disk / "step_1") as folder:
        safetensors.save_file({"w": numpy.ones(2**19, dtype=numpy.float32)}, folder / "model.safetensors")
    assert list(small_disk.iterdir()) == []


def test_space_is_checked_where_the_path_will_be(tmp_path):
    check_free_space(tmp_path / "not" / "there" / "yet", 1)
    with pytest.raises(UserError, match="the checkpoint needs"):
        check_free_space(tmp_path / "not" / "there" / "yet", 2**60, "the checkpoint")


def test_damage_is_listed(tmp_path):
    with atomic_folder(tmp_path / "a") as folder:
        fill(folder)
        (folder / "config.json").write_text("{}")
    (tmp_path / "a" / "config.json").unlink()
    (tmp_path / "a" / "tokenizer" / "vocab.json").write_text("{}x")
    weights = tmp_path / "a" / "model.safetensors"
    weights.write_bytes(b"W" + weights.read_bytes()[1:])
    damage = "\n".join(verify(tmp_path / "a"))
    assert "config.json is missing" in damage
    assert "tokenizer/vocab.json has 3 bytes instead of 2" in damage
    assert "model.safetensors has changed" in damage
    assert "changed" not in "\n".join(verify(tmp_path / "a", contents=False))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"files": {"a": {}}}', '{"files": {"../../etc/passwd": {"size": 1, "sha256": ""}}}']
)
def test_a_bad_manifest_is_damage(tmp_path, text):
    (tmp_path / MANIFEST).write_text(text)
    assert len(verify(tmp_path)) == 1


def test_a_file_is_replaced_whole(tmp_path):
    write_atomic(tmp_path / "summary.json", "old")
    write_atomic(tmp_path / "summary.json", "new")
    assert (tmp_path / "summary.json").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]
