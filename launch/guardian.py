"""The guardian: a small process that outlives the run by a second and leaves the machine as it found it.

However the run ends (success, error, Ctrl-C, SIGTERM, SIGKILL), the pipe between it and the guardian
closes. The guardian then kills every process that carries the run's marker in its environment (Ray, actors,
vLLM's children) and removes what they had in /dev/shm, and their temporary files. It is the only clean-up path, so
it is always tested.
Linux only. Must not import anything outside the standard library: it starts in milliseconds.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

MARKER = "RLVR_RUN_ID"
"""Environment variable that every process of a run inherits."""

SHARED_MEMORY = Path("/dev/shm")
SWEEP_DEADLINE_S = 20.0


def shared_folder(run_id: str) -> Path:
    """Where this host keeps the run's weight updates."""
    return SHARED_MEMORY / f"rlvr-{run_id}"


def temporary_folder(run_id: str) -> Path:
    """Where the run's actors put temporary files: vLLM leaves sockets and rendezvous files behind."""
    return Path(tempfile.gettempdir()) / f"rlvr-{run_id}"


class Guardian:
    """Watches this process from another one, from `start` to `finish`."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        environment = {name: value for name, value in os.environ.items() if name != MARKER}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), run_id, str(os.getpid())],
            stdin=subprocess.PIPE,  # its closing is the signal; the write end is not inherited by any child
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # Ctrl-C and a killed process group must not reach it
        )

    def mark_environment(self) -> dict[str, str]:
        """Mark this process's environment, which Ray and all children inherit; returns what marks it, for actors."""
        marks = {
            MARKER: self.run_id,
            # vLLM titles its processes with setproctitle, which would wipe the environment that we look into.
            "SPT_NOENV": "1",
        }
        os.environ.update(marks)
        return marks

    def finish(self) -> bool:
        """Sweep now and wait for it. Returns whether nothing of the run was left."""
        assert self._process.stdin is not None  # PIPE above
        self._process.stdin.close()
        try:
            return self._process.wait(timeout=SWEEP_DEADLINE_S + 10) == 0
        except subprocess.TimeoutExpired:
            self._process.kill()
            return False


def processes_of(run_id: str, spare: frozenset[int]) -> Iterator[int]:
    """Process ids that carry the run's marker, zombies and `spare` left out."""
    wanted = f"{MARKER}={run_id}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in spare:
            continue
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # ended meanwhile, a zombie, or another user's


def mapped_shared_memory(pid: int) -> set[Path]:
    """Files in /dev/shm that a process has mapped or open."""
    found: set[str] = set()
    folder = Path(f"/proc/{pid}")
    try:
        for line in (folder / "maps").read_text(errors="replace").splitlines():
            found.add(line.split(maxsplit=5)[-1])
        for descriptor in (folder / "fd").iterdir():
            found.add(os.readlink(descriptor))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        pass  # ended meanwhile
    prefix = f"{SHARED_MEMORY}/"
    return {Path(name) for name in found if name.startswith(prefix) and not name.endswith("(deleted)")}


def sweep(run_id: str, spare: frozenset[int] = frozenset()) -> bool:
    """Kill the run's processes and remove their shared memory. Returns whether nothing is left."""
    leftovers: set[Path] = set()
    deadline = time.monotonic() + SWEEP_DEADLINE_S
    clean = False
    while not clean and time.monotonic() < deadline:
        alive = list(processes_of(run_id, spare))
        for pid in alive:
            leftovers |= mapped_shared_memory(pid)
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        clean = not alive
        if not clean:
            time.sleep(0.1)
    in_use = {path for entry in Path("/proc").iterdir() if entry.name.isdigit() for path in _mapped_by(entry.name)}
    for path in leftovers - in_use:
        path.unlink(missing_ok=True)
    for folder in (shared_folder(run_id), temporary_folder(run_id)):
        if folder.is_dir():
            shutil.rmtree(folder)
    return clean


def _mapped_by(pid: str) -> set[Path]:
    return mapped_shared_memory(int(pid))


def main() -> int:
    """Wait until the run's end of the pipe closes, give it the moment it needs to end, then sweep."""
    run_id, owner = sys.argv[1], int(sys.argv[2])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    return 0 if sweep(run_id, spare=frozenset({os.getpid(), owner})) else 1


if __name__ == "__main__":
    sys.exit(main())
