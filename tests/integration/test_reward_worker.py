"""Grading processes: deadlines hold, one failure touches one sample, order is kept, nothing outlives its owner."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from rlvr.errors import ConfigError, InfrastructureError
from rlvr.records import Status
from rlvr.rewards import Sample
from rlvr.rewards.composite import CriterionSpec
from rlvr.rewards.worker import ChildSettings, WorkerPool

MODULE = """
import os
import subprocess
import sys
import time

import numpy

def echo(sample):
    return float(sample.completion)

def raises(sample):
    raise ValueError("boom")

def nan(sample):
    return float("nan")

def none(sample):
    return None

def wrong_length(sample):
    return [1.0, 0.0, 1.0]

def never_returns(sample):
    while True:
        pass

def never_returns_in_c(sample):
    return 3 ** (10 ** 12)

def does(sample):
    command = sample.completion
    if command == "loop":
        while True:
            pass
    if command == "sleep":
        time.sleep(1000)
    if command == "exit":
        os._exit(3)
    if command == "abort":
        os.abort()
    if command == "kill":
        os.kill(os.getpid(), 9)
    if command == "memory":
        hoard = []
        while True:
            hoard.append(bytearray(2 ** 24))
    if command == "raise":
        raise ValueError("boom")
    if command == "stdout":
        print("x" * 10000, flush=True)
        os.write(1, b"\\x00\\x00\\x00\\x02{}")
        subprocess.run(["echo", "from a child"])
    if command == "stdin":
        assert sys.stdin.read() == ""
    if command == "descendant":
        process = subprocess.Popen(["sleep", "1000"])
        open(sample.extra["file"], "w").write(str(process.pid))
        while True:
            pass
    return 1.0

def once(sample):
    # Fails on the first process that sees it, and works on the next one.
    if not os.path.exists(sample.extra["file"]):
        open(sample.extra["file"], "w").close()
        {"loop": lambda: time.sleep(1000), "exit": lambda: os._exit(3)}[sample.completion]()
    return 1.0

def columns(sample):
    assert sample.prompt == ({"role": "user", "content": "3+4?"},), sample.prompt
    assert sample.token_ids == (1, 2) and sample.truncated is True
    assert sample.extra == {"a": [1, 2], "b": 1.5, "d": "2024-01-02", "t": "\\ud800 \\u00e9"}, sample.extra
    return 1.0

def is_clean(sample):
    return float("pytest" not in sys.modules and "ray" not in sys.modules and os.getcwd() == sample.reference)
"""

Pool = Callable[..., Awaitable[WorkerPool]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MODULE)
    return tmp_path


@asynccontextmanager
async def pool(
    folder: Path, *verifiers: str, processes: int = 1, timeout_s: float = 30.0, memory_gb: float = 2.0
) -> AsyncIterator[WorkerPool]:
    specs = tuple(CriterionSpec(f"c{i}", verifier) for i, verifier in enumerate(verifiers))
    workers = WorkerPool(ChildSettings(specs, timeout_s, memory_gb, str(folder)), processes)
    await workers.start()
    try:
        yield workers
    finally:
        await workers.close()
        assert not _children(), "a grading process outlived its pool"


def _children() -> list[int]:
    """Grading processes of this test process."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"rlvr.rewards.child" in (entry / "cmdline").read_bytes():
                status = (entry / "status").read_text()
                if f"PPid:\t{os.getpid()}\n" in status:
                    found.append(int(entry.name))
        except OSError:
            continue
    return found


def _alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def _gone(pids: list[int], within_s: float = 20.0) -> bool:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if not any(_alive(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


async def test_verdicts_come_back_in_order(folder: Path) -> None:
    async with pool(folder, "mine:echo", "numeric_answer", processes=2) as workers:
        verdicts = await workers.grade([Sample(str(i), "7") for i in range(100)])
        assert [verdict.parts["c0"].score for verdict in verdicts] == list(map(float, range(100)))
        assert {verdict.sandbox for verdict in verdicts} == {"process"}
        assert len(workers.identities) == 2
        assert verdicts[0].verifier == "+".join(workers.identities)


@pytest.mark.parametrize(
    ("function", "says"),
    [("raises", "ValueError: boom"), ("nan", "nan"), ("none", "could not verify"), ("wrong_length", "3 values")],
)
async def test_a_bad_function_gives_no_score_and_says_why(folder: Path, function: str, says: str) -> None:
    async with pool(folder, f"mine:{function}") as workers:
        first, second = await workers.grade([Sample("x"), Sample("y")])
    for verdict in (first, second):
        assert (verdict.score, verdict.status) == (None, Status.VERIFIER_ERROR)
        assert says in verdict.parts["c0"].evidence


@pytest.mark.parametrize("function", ["never_returns", "never_returns_in_c"])
async def test_a_function_that_never_returns_is_our_failure(folder: Path, function: str) -> None:
    async with pool(folder, f"mine:{function}", timeout_s=0.5) as workers:
        verdicts = await workers.grade([Sample("x"), Sample("y"), Sample("z")])
    for verdict in verdicts:
        assert (verdict.score, verdict.status) == (None, Status.VERIFIER_ERROR)
        assert "has not returned for any completion yet" in verdict.parts["c0"].evidence


@pytest.mark.parametrize("bad", ["loop", "sleep", "memory"])
async def test_what_a_completion_causes_scores_0_and_touches_only_it(folder: Path, bad: str) -> None:
    async with pool(folder, "mine:does", timeout_s=2.0, memory_gb=0.1) as workers:
        verdicts = await workers.grade([Sample("fine"), Sample(bad), Sample("fine")])
    assert [verdict.score for verdict in verdicts] == [1.0, 0.0, 1.0]
    assert verdicts[1].status is Status.TIMEOUT
    assert "twice" in verdicts[1].parts["c0"].evidence
    assert ("memory" in verdicts[1].parts["c0"].evidence) == (bad == "memory")


@pytest.mark.parametrize(
    ("bad", "says"), [("exit", "exit code 3"), ("abort", "SIGABRT"), ("kill", "SIGKILL"), ("raise", "boom")]
)
async def test_a_crash_gives_no_score_and_touches_one_sample(folder: Path, bad: str, says: str) -> None:
    async with pool(folder, "mine:does", processes=2) as workers:
        verdicts = await workers.grade([Sample(text) for text in ["fine", bad, "fine", "fine"]])
    assert [verdict.score for verdict in verdicts] == [1.0, None, 1.0, 1.0]
    assert verdicts[1].status is Status.VERIFIER_ERROR
    assert says in verdicts[1].parts["c0"].evidence


@pytest.mark.parametrize("failure", ["loop", "exit"])
async def test_a_failure_that_does_not_repeat_on_a_fresh_process_is_forgiven(folder: Path, failure: str) -> None:
    async with pool(folder, "mine:once", timeout_s=2.0) as workers:
        (verdict,) = await workers.grade([Sample(failure, extra={"file": str(folder / "seen")})])
    assert (verdict.score, verdict.status) == (1.0, Status.OK)


async def test_only_the_criterion_at_fault_is_charged(folder: Path) -> None:
    async with pool(folder, "numeric_answer", "mine:does", "answer_format", timeout_s=1.0) as workers:
        await workers.grade([Sample("fine", "7")])
        loops, dies = await workers.grade([Sample("loop", "7"), Sample("exit", "7")])
    assert [part.status for part in loops.parts.values()] == [Status.NO_ANSWER, Status.TIMEOUT, Status.WRONG]
    assert (loops.score, loops.status) == (0.0, Status.NO_ANSWER)
    assert [part.score for part in dies.parts.values()] == [0.0, None, 0.0]
    assert (dies.score, dies.status) == (None, Status.VERIFIER_ERROR)


async def test_what_a_function_prints_and_reads_does_not_disturb(folder: Path) -> None:
    async with pool(folder, "mine:does") as workers:
        verdicts = await workers.grade([Sample("stdout"), Sample("stdin"), Sample("fine")])
    assert [verdict.score for verdict in verdicts] == [1.0, 1.0, 1.0]


async def test_a_killed_process_takes_its_descendants_along(folder: Path) -> None:
    file = folder / "pid"
    async with pool(folder, "mine:does", timeout_s=2.0) as workers:
        await workers.grade([Sample("fine"), Sample("descendant", extra={"file": str(file)})])
    assert _gone([int(file.read_text())])


async def test_samples_arrive_as_they_were(folder: Path) -> None:
    extra = {"a": np.array([1, 2]), "b": np.float64(1.5), "d": date(2024, 1, 2), "t": "\ud800 \u00e9"}
    sample = Sample("x", prompt=({"role": "user", "content": "3+4?"},), token_ids=(1, 2), truncated=True, extra=extra)
    async with pool(folder, "mine:columns") as workers:
        (verdict,) = await workers.grade([sample])
        assert verdict.score == 1.0, verdict
        (verdict,) = await workers.grade([Sample("x", extra={"bad": object()})])
        assert verdict.status is Status.VERIFIER_ERROR
        assert "plain data" in verdict.parts["c0"].evidence


async def test_children_are_clean_interpreters_in_the_folder_of_the_run(folder: Path) -> None:
    async with pool(folder, "mine:is_clean") as workers:
        (verdict,) = await workers.grade([Sample("x", str(folder))])
    assert verdict.score == 1.0, verdict


async def test_problems_of_the_configuration_are_raised_at_start(folder: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        async with pool(folder, "mine:ech", "no_such:f", "numeric_answer", processes=2):
            pass
    assert [problem.split(":")[0] for problem in raised.value.problems] == [
        "reward.criteria.c0.verifier",
        "reward.criteria.c1.verifier",
    ]
    assert not _children()


async def test_a_function_that_changes_during_a_run_is_refused(folder: Path) -> None:
    async with pool(folder, "mine:does", timeout_s=1.0) as workers:
        await workers.grade([Sample("fine")])
        (folder / "mine.py").write_text(MODULE.replace("boom", "another text"))
        with pytest.raises(ConfigError, match="changed while the run was going"):
            await workers.grade([Sample("loop")])


async def test_a_cancelled_grading_leaves_a_usable_pool(folder: Path) -> None:
    async with pool(folder, "mine:does") as workers:
        task = asyncio.create_task(workers.grade([Sample("sleep")]))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (verdict,) = await workers.grade([Sample("fine")])
        assert verdict.score == 1.0


async def test_closing_while_grading_leaves_no_process(folder: Path) -> None:
    async with pool(folder, "mine:does") as workers:
        task = asyncio.create_task(workers.grade([Sample("sleep")]))
        await asyncio.sleep(0.3)
        await workers.close()
        with pytest.raises(InfrastructureError, match="closed"):
            await task


async def test_a_module_of_the_user_goes_before_installed_ones_but_not_before_pythons(folder: Path) -> None:
    (folder / "yaml.py").write_text("def f(sample):\n    return 0.5\n")
    (folder / "random.py").write_text("raise RuntimeError('this is not random')\n")
    (folder / "uses.py").write_text("import random\nimport yaml\nf = yaml.f\n")
    async with pool(folder, "uses:f") as workers:
        (verdict,) = await workers.grade([Sample("x")])
    assert verdict.score == 0.5


@pytest.fixture
def owner(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a pool whose children are in endless loops, one of them in C."""
    script = f"""
    import asyncio
    import signal
    from rlvr.rewards import Sample
    from rlvr.rewards.composite import CriterionSpec
    from rlvr.rewards.worker import ChildSettings, WorkerPool

    async def main():
        pools = []
        for name in ("never_returns", "never_returns_in_c", "echo"):
            settings = ChildSettings((CriterionSpec("a", f"mine:{{name}}"),), 1000.0, folder={str(folder)!r})
            pools.append(WorkerPool(settings))
            await pools[-1].start()
        tasks = [asyncio.create_task(pool.grade([Sample("1")])) for pool in pools]
        await tasks[-1]
        await asyncio.sleep(1)
        print("looping", flush=True)
        await asyncio.sleep(1000)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    asyncio.run(main())
    """
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, env=environment)
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_grading_processes_die_with_their_owner(owner: subprocess.Popen[bytes], by: signal.Signals) -> None:
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"looping\n"
    children = [
        int(pid)
        for thread in Path(f"/proc/{owner.pid}/task").iterdir()
        for pid in (thread / "children").read_text().split()
    ]
    assert len(children) == 3
    owner.send_signal(by)
    owner.wait(30)
    assert _gone(children)
