"""Grading in killable child processes: a deadline and a memory limit for every completion, order kept.

Each child is a clean interpreter (never a fork of this process), judges one sample at a time, and is killed and
replaced when it overruns its deadline, crashes or runs out of memory. One such event touches one sample. The
criterion at fault is tried once more on a fresh child. When that fails too:

- a crash is ours: no score, `verifier_error`;
- endless running and memory are what a completion can cause, so they score 0 with the status `timeout`: anything
  else would be a way out of a bad score. But a verifier that has never come to an end, for any completion, has
  shown nothing that a completion could be blamed for: until it has, running out is `verifier_error`, no score.

Must not know what any verifier does. Children die with the process that owns the pool; create pools on a thread
that lives as long.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import rlvr
from rlvr.errors import ConfigError, DeadlineError, InfrastructureError
from rlvr.records import Status, Verdict
from rlvr.rewards import wire
from rlvr.rewards.composite import CriterionSpec, combine
from rlvr.rewards.judgement import Judgement, failure
from rlvr.rewards.sample import Sample

#: A user's module may import a lot before its function can be called.
START_TIMEOUT_S = 120.0
#: Python and numpy need little; what a verifier allocates beyond this is a bomb.
MEMORY_GB = 2.0
_KILL_TIMEOUT_S = 10.0


class _Fault(Enum):
    TIME = "did not return"
    MEMORY = "ran out of memory"
    CRASH = "crashed"


@dataclass(frozen=True)
class _Trouble:
    fault: _Fault
    text: str


@dataclass(frozen=True)
class ChildSettings:
    """What every child of a pool is told at its start."""

    specs: tuple[CriterionSpec, ...]
    timeout_s: float
    memory_gb: float = MEMORY_GB
    folder: str = ""
    """Where the run was started: modules are looked for there. Empty: this process's current folder."""
    search_path: tuple[str, ...] = ()
    """sys.path of the process that started the run."""
    sandbox: Mapping[str, Any] = field(default_factory=dict)
    """How programs of completions are run: arguments of `programs.configure`."""


class _Child:
    """One grading process."""

    def __init__(self, settings: ChildSettings) -> None:
        self._settings = settings
        self._process: asyncio.subprocess.Process | None = None
        self.identities: list[str] = []
        self.sandbox = "process"

    async def start(self) -> None:
        """Raises ConfigError with what is wrong with the criteria, InfrastructureError when it does not come up."""
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "rlvr.rewards.child",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=grading_environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise InfrastructureError(f"cannot start a grading process: {error}") from None
        setup = {
            "specs": [asdict(spec) for spec in self._settings.specs],
            "folder": self._settings.folder or os.getcwd(),
            "search_path": list(self._settings.search_path),
            "memory_gb": self._settings.memory_gb,
            "sandbox": dict(self._settings.sandbox),
        }
        try:
            reply = await asyncio.wait_for(self._exchange(setup), START_TIMEOUT_S)
        except TimeoutError:
            await self.kill()
            raise DeadlineError(
                "the reward actor", "a grading process", "import the reward functions", START_TIMEOUT_S
            ) from None
        except (EOFError, OSError, ValueError) as error:
            code = await self.kill()
            raise InfrastructureError(f"a grading process ended while it started ({_ended(code)}): {error}") from None
        except BaseException:
            await self.kill()
            raise
        if "problems" in reply:
            await self.kill()
            raise ConfigError(list(reply["problems"]))
        self.identities = list(reply["identities"])
        self.sandbox = str(reply["sandbox"])

    async def judge(self, frame: bytes, first: int, judgements: list[Judgement]) -> _Trouble | None:
        """Append the judgements of the criteria from `first` on; what went wrong with the next one, if anything.

        After trouble, and after cancellation, the process is gone.
        """
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                self._send(frame)
                for _ in range(first, len(self._settings.specs)):
                    judgement = wire.judgement_from_plain(await self._receive())
                    if judgement.exhausted:
                        await self.kill()
                        return _Trouble(_Fault.MEMORY, judgement.evidence)
                    judgements.append(judgement)
            return None
        except TimeoutError:
            await self.kill()
            return _Trouble(_Fault.TIME, f"did not return within {self._settings.timeout_s:g} s")
        except (EOFError, OSError, ValueError, KeyError, TypeError) as error:
            code = await self.kill()
            detail = (
                "" if isinstance(error, (EOFError, OSError)) else f"; it wrote something else than a judgement: {error}"
            )
            return _Trouble(_Fault.CRASH, f"the grading process ended ({_ended(code)}){detail}")
        except BaseException:
            await self.kill()
            raise

    async def kill(self) -> int | None:
        """End the process and everything in its session, and reap it. Its exit code."""
        process = self._process
        if process is None:
            return None
        if process.returncode is None:
            with contextlib.suppress(TimeoutError):  # did it end by itself? Its own exit code says more than ours.
                if process.stdout is not None and process.stdout.at_eof():
                    await asyncio.wait_for(process.wait(), 1.0)
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if process.stdin is not None:
            process.stdin.close()
        await asyncio.wait_for(process.wait(), _KILL_TIMEOUT_S)
        return process.returncode

    async def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        self._send(wire.encode(message))
        return await self._receive()

    def _send(self, frame: bytes) -> None:
        if self._process is None or self._process.stdin is None:
            raise InfrastructureError("a grading process was used before it was started")
        # Not drained: the transport buffers what does not fit into the pipe, and there is one sample at a time.
        self._process.stdin.write(frame)

    async def _receive(self) -> dict[str, Any]:
        if self._process is None or self._process.stdout is None:
            raise InfrastructureError("a grading process was used before it was started")
        header = await self._process.stdout.readexactly(wire.HEADER.size)
        return wire.decode(await self._process.stdout.readexactly(wire.body_length(header)))


class WorkerPool:
    """Judges samples on `processes` children. All methods run on one event loop."""

    def __init__(self, settings: ChildSettings, processes: int = 1) -> None:
        self._settings = settings
        self._processes = processes
        self._idle: asyncio.Queue[_Child | None] = asyncio.Queue()
        self._children: set[_Child] = set()
        self._has_returned: set[int] = set()
        self._given_up: set[int] = set()
        self._closed = False
        self.identities: list[str] = []
        self._sandbox = "process"

    async def start(self) -> list[str]:
        """Start the children; the identities of the criteria's verifiers. Raises ConfigError, InfrastructureError."""
        first = await self._spawn()  # alone: what is wrong with the configuration is wrong with all of them
        self.identities = first.identities
        try:
            rest = await asyncio.gather(*(self._spawn() for _ in range(self._processes - 1)))
        except BaseException:
            await self.close()
            raise
        for child in [first, *rest]:
            self._idle.put_nowait(child)
        return self.identities

    async def grade(self, samples: Sequence[Sample]) -> list[Verdict]:
        """A verdict for each sample, in order. Raises InfrastructureError when children can no longer be started."""
        results = await asyncio.gather(*(self._grade(sample) for sample in samples), return_exceptions=True)
        verdicts: list[Verdict] = []
        for result in results:
            if isinstance(result, BaseException):
                raise result
            verdicts.append(result)
        return verdicts

    async def close(self) -> None:
        """Kill the children, for good. What is being graded fails with InfrastructureError."""
        self._closed = True
        children, self._children = list(self._children), set()
        await asyncio.gather(*(child.kill() for child in children))

    async def _spawn(self) -> _Child:
        self._refuse_if_closed()
        child = _Child(self._settings)
        self._children.add(child)
        try:
            await child.start()
            self._refuse_if_closed()  # meanwhile
        except BaseException:
            self._children.discard(child)
            await child.kill()
            raise
        self._sandbox = child.sandbox
        if self.identities and child.identities != self.identities:
            self._children.discard(child)
            await child.kill()
            raise ConfigError(
                f"a reward function was changed while the run was going: {'+'.join(self.identities)} is now "
                f"{'+'.join(child.identities)}. Start a new run to use it."
            )
        return child

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise InfrastructureError("the grading processes were closed")

    async def _grade(self, sample: Sample) -> Verdict:
        judgements: list[Judgement] = []
        specs = self._settings.specs
        child = await self._idle.get()
        started = time.perf_counter()
        tried = -1  # the criterion that has failed once on this sample
        try:
            while len(judgements) < len(specs):
                first = len(judgements)
                try:
                    frame = wire.encode({"first": first, "sample": wire.sample_to_plain(sample)})
                except (TypeError, ValueError) as error:
                    judgements += [failure(str(error))] * (len(specs) - first)
                    break
                child = child or await self._spawn()
                trouble = await child.judge(frame, first, judgements)
                self._has_returned.update(range(first, len(judgements)))
                if trouble is None:
                    break
                self._children.discard(child)
                child = None
                guilty = len(judgements)
                hopeless = guilty in self._given_up and guilty not in self._has_returned
                if tried == guilty or (hopeless and trouble.fault is not _Fault.CRASH):
                    judgements.append(self._blame(guilty, trouble))
                else:
                    tried = guilty
        except BaseException:
            if child is not None:
                self._children.discard(child)
                await child.kill()
            child = None
            raise
        finally:
            self._idle.put_nowait(child)
        seconds = time.perf_counter() - started
        return combine(specs, self.identities, judgements, seconds=seconds, sandbox=self._sandbox)

    def _blame(self, index: int, trouble: _Trouble) -> Judgement:
        """The judgement of a criterion that failed on a fresh child too."""
        if trouble.fault is _Fault.CRASH:
            return failure(f"{trouble.text}, twice")
        if index not in self._has_returned:
            self._given_up.add(index)
            return failure(f"{trouble.text}, and this verifier has not returned for any completion yet")
        return Judgement(0.0, Status.TIMEOUT, f"{trouble.text}, twice")


def grading_environment() -> dict[str, str]:
    """This process's environment, and what lets the child find rlvr in a plain checkout."""
    environment = dict(os.environ)
    root = str(Path(rlvr.__file__).resolve().parents[1])
    if root not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        known = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{root}{os.pathsep}{known}" if known else root
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        environment[variable] = "1"  # graders run beside the engine and the learner
    return environment


def _ended(code: int | None) -> str:
    if code is None:
        return "still running"
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
