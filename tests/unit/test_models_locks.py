"""One process at a time, a deadline for the others, and nothing left behind by a killed one."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rlvr.errors import DeadlineError
from rlvr.models.locks import exclusive

HOLDER = """
import sys, time
from pathlib import Path
from rlvr.models.locks import exclusive
with exclusive(Path(sys.argv[1]), what="convert x", deadline_s=5, log=print):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "lock")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def hold(path: Path, deadline_s: float, told: list[str]) -> bool:
    with exclusive(path, what="convert x", deadline_s=deadline_s, log=told.append):
        return True


def test_a_held_lock_makes_others_wait_and_then_give_up_naming_the_holder(tmp_path, holder):
    told: list[str] = []
    with pytest.raises(DeadlineError, match=rf"another run \(process {holder.pid}\) to convert x, and gave up"):
        hold(tmp_path / "lock", 0.3, told)
    assert len(told) == 1 and f"process {holder.pid}" in told[0]


def test_a_killed_holder_leaves_the_lock_free(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert hold(tmp_path / "lock", 5, [])


def test_an_ended_holder_leaves_the_lock_free(tmp_path):
    told: list[str] = []
    assert hold(tmp_path / "lock", 1, told) and hold(tmp_path / "lock", 1, told)
    assert told == []
