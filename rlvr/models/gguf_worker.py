"""The child process that turns one GGUF file into safetensors: `python -m rlvr.models.gguf_worker FILE FOLDER PARENT`.

Its last line on standard output is a JSON object: {"versions": ...} on success, {"problem": ...} for what the
user can mend. Anything else ends with a traceback on standard error. It knows nothing of caches and locks.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import json
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_NEEDED = ("torch", "transformers", "gguf", "accelerate")


def main(source: Path, target: Path, parent: int) -> int:
    """Convert `source` into `target`; returns the exit code."""
    _die_with(parent)
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        return _problem(f"Transformers reads GGUF with the packages {', '.join(_NEEDED)}; "
                        f"run `pip install {' '.join(missing)}`")  # fmt: skip
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    folder, name = str(source.parent), source.name
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(
            folder,
            gguf_file=name,
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.float32,
            local_files_only=True,
        )
    except (ValueError, KeyError, NotImplementedError) as error:  # architectures and types that it cannot read
        return _problem(f"{type(error).__name__}: {error}")
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    _clean_tokenizer_config(target / "tokenizer_config.json")
    versions = {package: importlib.metadata.version(package) for package in _NEEDED}
    sys.stdout.write("\n" + json.dumps({"versions": versions}) + "\n")
    return 0


def _clean_tokenizer_config(path: Path) -> None:
    """Drop what describes how this process loaded the tokenizer, not the tokenizer."""
    config = json.loads(path.read_text(encoding="utf-8"))
    for key in ("is_local", "local_files_only"):
        config.pop(key, None)
    path.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _problem(text: str) -> int:
    sys.stdout.write("\n" + json.dumps({"problem": text}) + "\n")
    return 1


def _die_with(parent: int) -> None:
    """Ask the kernel to end this process with its parent; the parent may have died before this line."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
