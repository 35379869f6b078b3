"""Programs reach nothing, right ones run, and nothing of them or of the sandbox stays behind."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlvr.errors import ConfigError
from rlvr.records import Status
from rlvr.rewards import Reward, Sample, programs
from rlvr.rewards.composite import CriterionSpec
from rlvr.rewards.worker import ChildSettings, WorkerPool
from rlvr.sandbox import confine
from rlvr.sandbox.levels import Level
from rlvr.sandbox.owner import Cause, Limits, Sandbox
from rlvr.sandbox.probes import measure

NAMESPACES = {confine.NAMESPACES, confine.USER_NAMESPACE}
NOBODY = 65534
MEASURE = """
import json, sys
from rlvr.sandbox.owner import Sandbox
from rlvr.sandbox.probes import measure
sandbox = Sandbox(without=sys.argv[1:])
found = measure(sandbox)
print(json.dumps([found.level.value, found.failures(), sorted(sandbox.steps)]))
sandbox.close()
"""


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    box = Sandbox()
    yield box
    box.close()


def descendants(process: int) -> set[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found, size = {process}, 0
    while len(found) > size:
        size = len(found)
        found |= {child for child, parent in parents.items() if parent in found}
    return found


def gone(processes: set[int], within_s: float = 10.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        alive = [
            p for p in processes if Path(f"/proc/{p}").exists() and " Z " not in Path(f"/proc/{p}/stat").read_text()
        ]
        if not alive:
            return True
        time.sleep(0.05)
    return False


def traces() -> tuple[list[str], str]:
    files = [f"{folder}/{name}" for folder in ("/tmp", "/dev/shm") for name in os.listdir(folder) if "escape" in name]
    return files, Path("/proc/self/mountinfo").read_text()


@pytest.mark.parametrize("without", [set(), NAMESPACES], ids=["all means", "no namespaces"])
def test_no_probe_reaches_anything(without):
    before = traces()
    box = Sandbox(without=without)
    try:
        found = measure(box)
    finally:
        box.close()
    assert found.failures() == []
    assert found.level.reaches(Level.CONFINED)
    assert (found.level is Level.NAMESPACES) is bool(box.steps & NAMESPACES)
    assert traces() == before


@pytest.mark.parametrize("without", [[], sorted(NAMESPACES)], ids=["all means", "no namespaces"])
def test_no_probe_reaches_anything_as_an_ordinary_user(without, repository):
    if os.geteuid() != 0:
        pytest.skip("this is an ordinary user: the test above is this one")
    python = next((path for path in (sys.executable, shutil.which("python3", path="/usr/bin")) if usable(path)), None)
    if python is None:
        pytest.skip("no Python 3.11 or later that an ordinary user may execute")
    done = subprocess.run(
        [python, "-B", "-c", MEASURE, *without],
        capture_output=True,
        text=True,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
        env={"PYTHONPATH": str(repository)},
    )
    assert done.returncode == 0, done.stderr
    level, failures, steps = json.loads(done.stdout)
    assert failures == [] and Level(level).reaches(Level.CONFINED), steps
    assert confine.UID not in steps


def usable(path: str | None) -> bool:
    if path is None:
        return False
    try:
        code = "import sys; sys.exit(sys.version_info < (3, 11))"
        return subprocess.run([path, "-c", code], user=NOBODY, group=NOBODY, extra_groups=[], cwd="/").returncode == 0
    except PermissionError:
        return False


@pytest.mark.parametrize(
    ("without", "level"),
    [
        ({confine.SECCOMP}, Level.NONE),
        ({confine.LANDLOCK, confine.CHROOT}, Level.LIMITS),
    ],
)
def test_the_level_is_what_the_probes_find(without, level):
    box = Sandbox(without=NAMESPACES | without)
    try:
        found = measure(box)
    finally:
        box.close()
    assert found.level is level
    assert found.failures()


def test_below_the_least_level_nothing_starts(monkeypatch):
    programs.close()
    with monkeypatch.context() as patched:
        patched.setattr(programs, "Sandbox", functools.partial(Sandbox, without=[*NAMESPACES, confine.SECCOMP]))
        reward = Reward.of([CriterionSpec("answer", "python")])
        with pytest.raises(ConfigError, match=r"reward\.sandbox\.min_level: programs would run at the level 'none'"):
            reward.prepare()
    programs.close()


def run(sandbox: Sandbox, code: str, limits: Limits | None = None) -> tuple[dict[str, object], Cause]:
    """The answer to f(), or {}; and how the program ended."""
    reply: dict[str, object] = {}
    with sandbox.program(limits or Limits()) as program:
        program.send({"do": "calls", "code": textwrap.dedent(code)})
        program.send({"calls": [["f", {"t": []}, {"d": []}]]})
        try:
            reply = program.receive()
            reply = program.receive() if reply.get("loaded") else reply
        except (EOFError, ValueError):
            reply = {}
    assert program.ran is not None
    return reply, program.ran.cause


def test_limits_end_a_program_and_say_why(sandbox):
    short = Limits(cpu_s=0.3, wall_s=0.6, memory_mb=64)
    assert run(sandbox, "def f():\n    while True: pass", short) == ({}, Cause.CPU)
    assert run(sandbox, "import time\ndef f(): time.sleep(100)", short) == ({}, Cause.WALL)
    reply, _ = run(sandbox, "def f(): return len(bytearray(2**30))", short)
    assert reply["raised"] == "MemoryError"
    assert run(sandbox, "import os\ndef f(): os.kill(os.getppid(), 9)", short) == ({}, Cause.FORBIDDEN)
    assert run(sandbox, "import os\ndef f(): os.abort()", short) == ({}, Cause.CRASHED)
    assert run(sandbox, "def f(): return 7", short) == ({"value": 7}, Cause.ENDED)


def test_one_program_cannot_leave_anything_for_the_next(sandbox):
    run(
        sandbox,
        """
        import builtins, json, os, random, sys
        def f():
            builtins.len = lambda x: 42
            json.loads = None
            sys.meta_path.clear()
            os.environ["LEFT"] = "x"
            return 1
        """,
    )
    code = "import os, json, csv\ndef f(): return [len([1]), json.loads('2'), os.environ.get('LEFT')]"
    assert run(sandbox, code)[0] == {"value": [1, 2, None]}


def test_threads_of_any_owner_share_a_sandbox(sandbox):
    results: list[object] = []
    threads = [threading.Thread(target=lambda: results.append(run(sandbox, "def f(): return 7")[0])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [{"value": 7}] * 8


def test_a_program_dies_with_its_zygote_and_the_next_one_runs(sandbox):
    sandbox.start()
    with pytest.raises(Exception, match="zygote has ended"), sandbox.program(Limits(wall_s=60)) as program:
        program.send({"do": "calls", "code": "import time\ntime.sleep(600)"})
        time.sleep(0.3)
        family = descendants(sandbox.process)
        assert len(family) >= 2
        os.kill(max(family - {max(family)}) if len(family) > 2 else sandbox.process, signal.SIGKILL)
        time.sleep(0.3)
    assert gone(family)
    assert run(sandbox, "def f(): return 7")[0] == {"value": 7}


OWNER = """
import sys
from rlvr.sandbox.owner import Limits, Sandbox
sandbox = Sandbox()
with sandbox.program(Limits(cpu_s=60, wall_s=60)) as program:
    program.send({"do": "calls", "code": "while True: pass"})
    print(sandbox.process, flush=True)
    program.receive()
"""


@pytest.mark.parametrize("fatal", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_killed_owner(fatal, repository):
    before = traces()
    with subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdout=subprocess.PIPE,
        cwd=repository,
        env=os.environ | {"PYTHONPATH": str(repository)},
    ) as owner:
        assert owner.stdout is not None
        zygote = int(owner.stdout.readline())
        time.sleep(0.3)
        family = descendants(zygote)
        assert len(family) >= 2
        owner.send_signal(fatal)
        owner.wait(10)
    assert gone(family)
    assert traces() == before


async def test_every_verdict_says_how_its_program_was_confined(tmp_path):
    pool = WorkerPool(ChildSettings((CriterionSpec("answer", "python"),), 20.0, 2.0, str(tmp_path)), 1)
    try:
        await pool.start()
        code = "```python\ndef f(x): return x\n```"
        verdicts = await pool.grade([Sample(code, "assert f(1) == 1"), Sample(code, "assert f(1) == 2")])
    finally:
        await pool.close()
    assert [verdict.status for verdict in verdicts] == [Status.OK, Status.WRONG]
    assert all(Level(verdict.sandbox).reaches(Level.CONFINED) for verdict in verdicts)
