"""Spawned processes and their shared memory leave nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from multiprocessing import shared_memory as python_shared_memory
from pathlib import Path

import psutil

from rlvr.engine import processes

SLEEPER = "import signal, time\n{}\nprint('ready', flush=True)\ntime.sleep(60)"


def spawn(setup: str = "") -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", SLEEPER.format(setup)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_a_child_that_ignores_its_end_is_killed() -> None:
    with spawn("signal.signal(signal.SIGTERM, signal.SIG_IGN)") as process:
        (child,) = [child for child in processes.children() if child.pid == process.pid]
        processes.end([child], grace_s=0.2)
        assert not psutil.pid_exists(process.pid)


def test_a_process_that_has_ended_already_is_fine() -> None:
    with spawn() as process:
        (child,) = [child for child in processes.children() if child.pid == process.pid]
        process.kill()
        process.wait()
        processes.end([child], grace_s=0.2)


def test_a_process_that_got_the_id_of_another_is_left_alone() -> None:
    with spawn() as process:
        processes.end([processes.Child(process.pid, created=1.0)], grace_s=0.2)
        assert psutil.pid_exists(process.pid)
        process.kill()


def test_shared_memory_is_found_by_who_maps_it_and_loses_only_its_name() -> None:
    segment = python_shared_memory.SharedMemory(create=True, size=4096)
    path = Path("/dev/shm") / segment.name
    me = processes.Child(os.getpid(), 0.0)
    assert path in processes.shared_memory([me])
    processes.forget_names([path])
    assert not path.exists()
    assert path not in processes.shared_memory([me])
    segment.buf[0] = 7
    with processes.names_in_place([path]):
        assert path.exists()
        segment.close()
        segment.unlink()  # as its owner does when it ends in good order
    assert not path.exists()


def test_names_do_not_stay_when_their_owner_never_removes_them() -> None:
    path = Path("/dev/shm/psm_rlvr_test_owner_was_killed")
    with processes.names_in_place([path]):
        assert path.exists()
    assert not path.exists()
