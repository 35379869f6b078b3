"""Peak memory of a run: the largest sum, at one moment, of the PSS of all of its processes on this machine.

PSS counts a page that k processes share as 1/k of a page in each of them, so the sum counts every page once.
A process belongs to the run when it descends from the run's own process, or carries the run's marker in its
environment (a Ray cluster that was there before is no descendant), or once did: Ray and vLLM overwrite their
environment when they set their title, and orphans change their parent. Linux only; reads /proc and nothing else.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

#: Environment variable that every process of a run inherits.
RUN_ID_VARIABLE = "RLVR_RUN_ID"
#: Seconds between looks.
PERIOD_S = 2.0
# The kernel walks the page tables to know a PSS: 34 ms for each GiB in small pages, measured, which would be a tenth
# of a core here. RSS is free, and no peak of PSS comes without one of RSS while what is shared stays shared. So PSS is
# read when the sum of RSS has grown by this much since it was read last at its largest, ...
_GROWTH_BYTES = 64 * 2**20
# ... and this often anyway, since pages that stop being shared raise the sum of PSS alone.
_REFRESH_S = 30.0

# A process may be seen before it has become the program that it is started for: its environment comes with that.
_ASK_TIMES = 5
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PSS = re.compile(rb"^Pss:\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True)
class Process:
    """One process: `start` (clock ticks since boot) tells it from a later one with the same id."""

    pid: int
    start: int
    parent: int


@dataclass
class Membership:
    """Which processes are of the run. Pure, apart from `has_marker`, which is asked about newcomers."""

    root: int
    has_marker: Callable[[int], bool]
    _members: set[tuple[int, int]] = field(default_factory=set)
    _asked: dict[tuple[int, int], int] = field(default_factory=dict)

    def of(self, processes: Iterable[Process]) -> list[int]:
        """The ids of those that belong, ascending. Forgets those that are gone."""
        found = list(processes)
        members: set[tuple[int, int]] = set()
        asked: dict[tuple[int, int], int] = {}
        children: dict[int, list[Process]] = {}
        for process in found:
            children.setdefault(process.parent, []).append(process)
            key = (process.pid, process.start)
            asked[key] = self._asked.get(key, 0)
            if process.pid == self.root or key in self._members:
                members.add(key)
            elif asked[key] < _ASK_TIMES:
                asked[key] += 1
                if self.has_marker(process.pid):
                    members.add(key)
        pending = [pid for pid, _ in members]
        while pending:
            for child in children.get(pending.pop(), ()):
                if (child.pid, child.start) not in members:
                    members.add((child.pid, child.start))
                    pending.append(child.pid)
        self._members, self._asked = members, asked
        return sorted(pid for pid, _ in members)


class MemorySampler:
    """Samples in a thread, from `start` to `stop`."""

    def __init__(self, run_id: str, period_s: float = PERIOD_S, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._period_s = period_s
        wanted = f"{RUN_ID_VARIABLE}={run_id}".encode()
        self._members = Membership(os.getpid(), lambda pid: wanted in _read(proc / str(pid) / "environ").split(b"\0"))
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory-sampler", daemon=True)
        self._peak = 0
        self._largest_rss = 0
        self._refresh_at = 0.0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> float:
        """End sampling, after one last sample, and return the peak in GiB. Stopping twice is fine."""
        if not self._stopping.is_set():
            self._stopping.set()
            if self._thread.is_alive():
                self._thread.join()
            self.sample()
        return self.peak_gb

    @property
    def peak_gb(self) -> float:
        """Largest sum so far, in GiB."""
        return self._peak / 2**30

    def sample(self) -> dict[int, int]:
        """PSS in bytes of each process of the run, now."""
        return self._measure(self._members.of(processes(self._proc)))

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._look()
            self._stopping.wait(self._period_s)

    def _look(self) -> None:
        members = self._members.of(processes(self._proc))
        rss = sum(rss_bytes(pid, self._proc) for pid in members)
        if rss >= self._largest_rss + _GROWTH_BYTES or time.monotonic() >= self._refresh_at:
            self._largest_rss = max(rss, self._largest_rss)
            self._measure(members)

    def _measure(self, members: Iterable[int]) -> dict[int, int]:
        found = {pid: pss_bytes(pid, self._proc) for pid in members}
        self._peak = max(self._peak, sum(found.values()))
        self._refresh_at = time.monotonic() + _REFRESH_S
        return found


def processes(proc: Path = Path("/proc")) -> list[Process]:
    """All processes of the machine that can be looked at."""
    found = []
    for entry in os.listdir(proc):
        if not entry.isdigit():
            continue
        # The name, in parentheses, may itself hold spaces and parentheses.
        fields = _read(proc / entry / "stat").rpartition(b") ")[2].split()
        if len(fields) > 19:
            found.append(Process(int(entry), start=int(fields[19]), parent=int(fields[1])))
    return found


def pss_bytes(pid: int, proc: Path = Path("/proc")) -> int:
    """Proportional set size of a process in bytes; 0 when it is gone, a zombie, or another user's."""
    match = _PSS.search(_read(proc / str(pid) / "smaps_rollup"))
    return int(match[1]) * 1024 if match else 0


def rss_bytes(pid: int, proc: Path = Path("/proc")) -> int:
    """Resident set size of a process in bytes, shared pages included; 0 when it is gone."""
    fields = _read(proc / str(pid) / "statm").split()
    return int(fields[1]) * _PAGE_BYTES if fields else 0


def _read(path: Path) -> bytes:
    """The file's content; nothing for a process that ended meanwhile, has no memory, or belongs to another user."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
