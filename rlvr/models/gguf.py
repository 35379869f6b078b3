"""A GGUF file becomes a folder in Hugging Face format: once, in a cache, whoever else wants it at the same time.

A cache entry is named after the content of the file and the version of the conversion. It appears by one rename,
so it is either complete or not there. Whoever is killed on the way leaves a hidden folder, which the next one
to hold the lock removes. The conversion itself runs in a child process (`gguf_worker`): it takes several times the
model's size in memory, which a driver that lives for days should not keep.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import rlvr
from rlvr.errors import UserError
from rlvr.models import folder
from rlvr.models.locks import exclusive

#: Raise it when the same file would become other weights or another tokenizer: old entries are not used then.
CONVERTER_VERSION = 1
#: A 135M model takes half a minute on two cores; a 7B model some minutes, on a slow disk a quarter of an hour.
DEADLINE_S = 3600.0
MANIFEST = "rlvr_conversion.json"


def convert(source: Path, *, cache_dir: Path, log: Callable[[str], None], deadline_s: float = DEADLINE_S) -> Path:
    """The folder with float32 safetensors and tokenizer made from the GGUF file `source`.

    Raises UserError when the file is not GGUF, its architecture is not supported, a package is missing, or the
    cache cannot be written; DeadlineError when another process holds the conversion for longer than `deadline_s`.
    """
    with source.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise UserError(f"{source} is not a GGUF file: it does not begin with the letters GGUF")
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    entry = cache_dir / "models" / f"{source.stem}-{digest[:16]}-v{CONVERTER_VERSION}"
    if _is_complete(entry):
        return entry
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        lock = entry.parent / f".{entry.name}.lock"
        with exclusive(lock, what=f"convert {source.name}", deadline_s=deadline_s, log=log) as descriptor:
            if not _is_complete(entry):  # else another run made it while this one waited
                _make(source, digest, entry, lock_descriptor=descriptor, log=log, deadline_s=deadline_s)
    except OSError as error:
        raise UserError(
            f"{source.name} cannot be converted into {entry.parent}: {error.strerror or error}. "
            "Make room there, or name another folder with model.cache_dir"
        ) from error
    return entry


def _is_complete(entry: Path) -> bool:
    """Is the entry there as it was made? Somebody may have deleted single files to make room."""
    try:
        manifest = json.loads((entry / MANIFEST).read_text(encoding="utf-8"))
        return all((entry / name).stat().st_size == size for name, size in manifest["bytes"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _make(
    source: Path, digest: str, entry: Path, *, lock_descriptor: int, log: Callable[[str], None], deadline_s: float
) -> None:
    """Convert into a hidden folder beside `entry`, then rename. The caller holds the lock of `entry`."""
    prefix = f".{entry.name}.making-"
    for left_over in entry.parent.glob(f"{prefix}*"):  # no living process makes one without the lock
        log(f"removing {left_over.name}, which an interrupted conversion left in {entry.parent}")
        shutil.rmtree(left_over)
    if entry.exists():
        log(f"{entry} is damaged, and made anew")
        shutil.rmtree(entry)
    log(f"converting {source.name} to safetensors, once, into {entry} (half a minute for a 135M model)")
    making = Path(tempfile.mkdtemp(prefix=prefix, dir=entry.parent))
    try:
        versions = _run_worker(source, making, lock_descriptor, deadline_s)
        making.chmod(0o755)  # mkdtemp's 0700 would hide the model from the user's other accounts
        sizes = {path.name: path.stat().st_size for path in sorted(making.iterdir())}
        manifest = {"source": source.name, "sha256": digest, "converter": CONVERTER_VERSION, "made_with": versions}
        (making / MANIFEST).write_text(json.dumps(manifest | {"bytes": sizes}, indent=2) + "\n", encoding="utf-8")
        folder.check(making)
        for path in making.iterdir():
            folder.fsync(path)
        folder.fsync(making)
        making.rename(entry)
        folder.fsync(entry.parent)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise


def _run_worker(source: Path, target: Path, lock_descriptor: int, deadline_s: float) -> dict[str, str]:
    """Run the conversion in a child process. Returns the versions of what it was made with."""
    root = str(Path(rlvr.__file__).parent.parent)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
        "HF_HUB_OFFLINE": "1",  # everything is in the file
        "CUDA_VISIBLE_DEVICES": "",  # converting needs no GPU, and must not start a context on one
    }
    command = [sys.executable, "-m", "rlvr.models.gguf_worker", str(source.resolve()), str(target), str(os.getpid())]
    try:
        # The child inherits the lock: even if this process is killed, nobody else works beside it.
        done = subprocess.run(
            command,
            env=environment,
            pass_fds=(lock_descriptor,),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=deadline_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"converting {source} took longer than {deadline_s:.0f} s, and was stopped") from None
    last_line = done.stdout.strip().rpartition("\n")[2]
    try:
        answer = json.loads(last_line)
    except ValueError:
        answer = {}
    if done.returncode == 0 and "versions" in answer:
        return dict(answer["versions"])
    if "problem" in answer:
        raise UserError(f"{source} cannot be converted: {answer['problem']}")
    tail = "\n".join(done.stderr.strip().splitlines()[-12:])
    killed = f"was killed by signal {-done.returncode}, perhaps for memory" if done.returncode < 0 else "failed"
    raise UserError(f"the process that converts {source} {killed} (exit code {done.returncode}):\n{tail}")
