"""Writing files and folders so that they are whole or absent, and saying clearly when the disk is full.

A folder made by `atomic_folder` carries a manifest (names, sizes, SHA-256), so that a reader can tell a
whole checkpoint from a damaged one. Knows nothing of what the files mean.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rlvr.errors import InfrastructureError, UserError

MANIFEST = "manifest.json"
_MANIFEST_FORMAT = 1
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_CHUNK = 1 << 20


@dataclass(frozen=True)
class ManifestEntry:
    """One file of a folder: its size in bytes and its content's SHA-256 in hex."""

    size: int
    sha256: str


def gib(size: float) -> str:
    """Bytes for people: "270.0 MiB", "1.5 GiB"."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"


def free_bytes(path: Path) -> int:
    """Bytes that this user may still write where `path` is, or will be."""
    existing = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    return shutil.disk_usage(existing).free


def check_free_space(path: Path, bytes_needed: int, what: str = "this") -> None:
    """Raises UserError when the file system of `path` has less than `bytes_needed` left.

    Another process may take the space afterwards: the writers of this module report that too.
    """
    free = free_bytes(path)
    if free < bytes_needed:
        raise UserError(
            f"{what} needs {gib(bytes_needed)} at {path}, but only {gib(free)} are free. "
            "Free some space there, or choose another disk with run.dir"
        )


def is_full_disk(error: BaseException) -> bool:
    """Whether `error`, or what caused it, says that the disk (or a quota) is full."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, OSError) and current.errno in _FULL:
            return True
        # Writers in Rust (safetensors, tokenizers) pass on the number in their text only.
        if not isinstance(current, OSError) and any(f"os error {number})" in str(current) for number in _FULL):
            return True
        pending += [current.__cause__, current.__context__]
    return False


def write_failure(path: Path, error: BaseException, written: int = 0) -> UserError | InfrastructureError:
    """What to raise when writing `path` failed with `error`, after `written` bytes."""
    free = free_bytes(path)
    if is_full_disk(error):
        return UserError(
            f"no space left to write {path}: {gib(free)} are free now, and {gib(written)} were written before it "
            "failed. Free some space there, or choose another disk with run.dir; what was saved earlier is untouched"
        )
    if isinstance(error, PermissionError) or (isinstance(error, OSError) and error.errno == errno.EROFS):
        return UserError(
            f"{path} may not be written ({error.strerror}). Mend its permissions, or choose another run.dir"
        )
    return InfrastructureError(f"writing {path} failed: {error}")


def write_atomic(path: Path, data: bytes | str) -> None:
    """Put `data` at `path`, whole or not at all, durable when this returns. Replaces an older file."""
    partial = path.with_name(f".{path.name}.partial")
    payload = data.encode() if isinstance(data, str) else data
    with replacing(path, partial), partial.open("wb") as file:
        file.write(payload)


@contextmanager
def replacing(path: Path, partial: Path) -> Iterator[Path]:
    """The body writes `partial`, which then takes the place of `path`; it is removed when anything fails.

    Raises UserError when the disk is full or may not be written, InfrastructureError on other I/O errors.
    """
    try:
        yield partial
        _sync_file(partial)
        os.replace(partial, path)
        _sync_folder(path.parent)
    except BaseException as error:
        written = partial.stat().st_size if partial.exists() else 0
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) or is_full_disk(error):
            raise write_failure(path, error, written) from error
        raise


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """The body fills a temporary folder beside `path`; at the end it gets its manifest and takes that name.

    When anything fails the temporary folder is removed and nothing else was touched. What a killed process
    left of an earlier try at the same `path` is removed first. Raises UserError when `path` exists, the disk is
    full or may not be written; InfrastructureError on other I/O errors; whatever else the body raises.
    """
    if path.exists():
        raise UserError(f"{path} exists already and is not overwritten. Move it away, or choose another run.dir")
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir()
        yield partial
        _write_manifest(partial)
        os.rename(partial, path)
        _sync_folder(path.parent)
    except BaseException as error:
        written = sum(file.stat().st_size for file in _files(partial)) if partial.exists() else 0
        # A second failure while clearing up must not hide the first one, which says what to do.
        with suppress(OSError):
            shutil.rmtree(partial)
        if isinstance(error, OSError) or is_full_disk(error):
            raise write_failure(path, error, written) from error
        raise


def read_manifest(folder: Path) -> dict[str, ManifestEntry]:
    """The manifest of `folder` by relative file name. Raises UserError when it is missing or unreadable."""
    file = folder / MANIFEST
    try:
        content = json.loads(file.read_text())
        entries = {
            str(name): ManifestEntry(size=int(entry["size"]), sha256=str(entry["sha256"]))
            for name, entry in content["files"].items()
        }
    except FileNotFoundError:
        raise UserError(f"{folder} has no {MANIFEST}: it is not a checkpoint, or it was not copied whole") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{file} is damaged ({error}). Copy the folder anew, or use another checkpoint") from None
    for name in entries:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise UserError(f"{file} names a file outside its folder: {name!r}. It is not one of ours; do not use it")
    return entries


def verify(folder: Path, *, contents: bool = True) -> list[str]:
    """What is wrong with `folder` against its manifest: one line per damage, empty when whole.

    `contents=False` compares names and sizes only, which takes no time with large files.
    """
    try:
        manifest = read_manifest(folder)
    except UserError as error:
        return [str(error)]
    damage = []
    for name, entry in manifest.items():
        file = folder / name
        if not file.is_file():
            damage.append(f"{name} is missing")
        elif (size := file.stat().st_size) != entry.size:
            damage.append(f"{name} has {size} bytes instead of {entry.size}")
        elif contents and _digest(file) != entry.sha256:
            damage.append(f"{name} has changed: its SHA-256 is not the one in {MANIFEST}")
    return damage


def _write_manifest(folder: Path) -> None:
    files = {}
    for file in _files(folder):
        _sync_file(file)
        files[file.relative_to(folder).as_posix()] = {"size": file.stat().st_size, "sha256": _digest(file)}
    manifest = folder / MANIFEST
    manifest.write_text(json.dumps({"format": _MANIFEST_FORMAT, "files": files}, indent=1, sort_keys=True) + "\n")
    _sync_file(manifest)
    for subfolder in {folder, *(file.parent for file in _files(folder))}:
        _sync_folder(subfolder)


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())


def _digest(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _sync_file(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
