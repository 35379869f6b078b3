"""The guardian: whatever way the run ends, none of its processes, shared memory and temporary files stays."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from rlvr.launch.guardian import MARKER, processes_of, shared_folder, temporary_folder

RUN = textwrap.dedent(
    """
    import mmap, os, subprocess, sys, time
    from rlvr.launch.guardian import MARKER, Guardian, shared_folder, temporary_folder
    run_id = sys.argv[1]
    guardian = Guardian(run_id)
    guardian.mark_environment()
    shared_folder(run_id).mkdir()
    (shared_folder(run_id) / "weights").write_bytes(b"x" * 4096)
    (temporary_folder(run_id) / "folder").mkdir(parents=True)
    (temporary_folder(run_id) / "folder" / "socket").touch()
    holder = (
        "import mmap, sys, time\\n"
        "file = open(sys.argv[1], 'wb+'); file.truncate(4096); view = mmap.mmap(file.fileno(), 4096)\\n"
        "time.sleep(600)"
    )
    # An orphan-to-be in a session of its own, as vLLM's children are, with shared memory of its own.
    subprocess.Popen([sys.executable, "-c", holder, f"/dev/shm/test-{run_id}"], start_new_session=True)
    while not os.path.exists(f"/dev/shm/test-{run_id}"):
        time.sleep(0.02)
    print("up", flush=True)
    if sys.argv[2] == "finish":
        sys.exit(0 if guardian.finish() else 1)
    time.sleep(600)
    """
)


def start(run_id: str, way: str) -> subprocess.Popen:
    run = subprocess.Popen([sys.executable, "-c", RUN, run_id, way], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    assert run.stdout.readline() == "up\n"
    return run


def wait_until_nothing_is_left(run_id: str) -> None:
    deadline = time.monotonic() + 20
    left = [object()]
    while left and time.monotonic() < deadline:
        left = [*processes_of(run_id, frozenset()), *_files(run_id)]
        time.sleep(0.05)
    assert not left, f"left behind: {left}"


def _files(run_id: str) -> list[Path]:
    ours = (shared_folder(run_id), temporary_folder(run_id), Path(f"/dev/shm/test-{run_id}"))
    return [path for path in ours if path.exists()]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_after_a_signal(number):
    run_id = secrets.token_hex(6)
    run = start(run_id, "sleep")
    os.kill(run.pid, number)
    run.wait(timeout=20)
    wait_until_nothing_is_left(run_id)


def test_nothing_is_left_after_an_orderly_end():
    run_id = secrets.token_hex(6)
    assert start(run_id, "finish").wait(timeout=40) == 0
    wait_until_nothing_is_left(run_id)


def test_processes_of_other_runs_are_spared():
    mine, other = secrets.token_hex(6), secrets.token_hex(6)
    bystander = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], env={**os.environ, MARKER: other}
    )
    try:
        run = start(mine, "sleep")
        run.kill()
        run.wait(timeout=20)
        wait_until_nothing_is_left(mine)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
