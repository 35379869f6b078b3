"""Is a folder a model in Hugging Face format, complete and safe to load? Reads headers only, loads nothing.

Must not know where the folder came from.
"""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

from rlvr.errors import UserError

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
# Any one of these is a tokenizer that Transformers loads.
_TOKENIZERS = (("tokenizer.json",), ("tokenizer.model",), ("vocab.json", "merges.txt"), ("spiece.model",))
_MAX_HEADER_BYTES = 100_000_000  # the limit that safetensors itself sets


def check(folder: Path) -> Path:
    """Return `folder` when it holds config, complete safetensors and a tokenizer; else UserError naming the lack."""
    lacks = []
    if not (folder / "config.json").is_file():
        lacks.append("config.json")
    weights = _weight_files(folder)
    if not weights:
        lacks.append(f"weights ({WEIGHTS} or {INDEX}{_other_weights(folder)})")
    lacks += [name for name in weights if not (folder / name).is_file()]
    if not any(all((folder / name).is_file() for name in names) for names in _TOKENIZERS):
        lacks.append("a tokenizer (tokenizer.json, tokenizer.model, or vocab.json with merges.txt)")
    if lacks:
        raise UserError(f"model folder {folder} is not complete. It lacks: {'; '.join(lacks)}")
    read_config(folder)
    for name in weights:
        _check_safetensors(folder / name)
    return folder


def read_config(folder: Path) -> dict[str, Any]:
    """The folder's config.json."""
    path = Path(folder) / "config.json"
    return _read_object(path)


def _weight_files(folder: Path) -> list[str]:
    """Names of the safetensors files that make up the weights, whether or not they are there."""
    if (folder / WEIGHTS).is_file():
        return [WEIGHTS]
    if not (folder / INDEX).is_file():
        return []
    weight_map = _read_object(folder / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise UserError(f"{folder / INDEX} has no weight_map; download or save the model again")
    return sorted(set(map(str, weight_map.values())))


def _other_weights(folder: Path) -> str:
    """A hint about weights that are there in a form that is not loaded."""
    if sorted(folder.glob("pytorch_model*.bin")):
        return "; pickled weights, pytorch_model.bin, are never loaded: save them once with safe_serialization=True"
    if ggufs := sorted(folder.glob("*.gguf")):
        return f"; to use a GGUF file, name the file itself: {ggufs[0]}"
    return ""


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise UserError(f"{path} holds no JSON object")
    return value


def _check_safetensors(path: Path) -> None:
    """The size must be what the header promises: a broken download is found here and not by an engine, later."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if not 2 <= length <= min(size - 8, _MAX_HEADER_BYTES):
            pointer = head.startswith(b"version ")
            hint = "it is a Git LFS pointer: run `git lfs pull`" if pointer else "download or save it again"
            raise UserError(f"{path} ({size} bytes) is not a safetensors file; {hint}")
        try:
            header = json.loads(file.read(length))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise UserError(f"{path} has a damaged safetensors header ({error}); download or save it again") from error
    expected = 8 + length + max(ends, default=0)
    if size != expected:
        raise UserError(f"{path} has {size} bytes where its header says {expected}; download or save it again")


def fsync(path: Path) -> None:
    """Make a file or a folder's entries durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
