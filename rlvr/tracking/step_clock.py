"""Where the wall time of a step goes: union of the intervals in which each part works, and the rest is overhead.

Activities overlap (64 groups are generated while others are judged and learned from), so durations cannot be
added up: each part gets the length of the union of its intervals, and overhead is the time covered by none of
them. Pure apart from the clock that it is given; knows the parts by name only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

#: What a step can be busy with. Weight sync and the parity probe are work, not overhead (DESIGN 9).
PARTS = ("rollout", "reward", "reference", "learner", "sync", "probe", "eval")

Interval = tuple[float, float]


@dataclass(frozen=True)
class StepTime:
    """The split of one step, in seconds.

    `parts` are busy times and overlap; `alone` splits the same step without overlap, each moment shared equally by
    the parts working then, so that `alone` and `overhead_s` add up to `seconds`: what a stacked bar shows.
    """

    seconds: float
    parts: dict[str, float] = field(default_factory=dict)
    alone: dict[str, float] = field(default_factory=dict)
    overhead_s: float = 0.0

    @property
    def overhead_share(self) -> float:
        """Share of the step in which nothing worked, 0 to 1."""
        return self.overhead_s / self.seconds if self.seconds > 0 else 0.0


class StepClock:
    """Times one step, from its creation to `finish`. May be used from several tasks and threads."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """`now` gives seconds; the default one is shared by all processes of a Linux host."""
        self._now = now
        self._lock = Lock()
        self._start = now()
        self._intervals: dict[str, list[Interval]] = {}
        self._open: dict[int, tuple[str, float]] = {}
        self._serial = 0

    @contextmanager
    def working(self, part: str) -> Iterator[None]:
        """The body is work of `part`; any number may be open at once. Raises ValueError for an unknown part."""
        _check(part)
        with self._lock:
            self._serial += 1
            ticket = self._serial
            self._open[ticket] = (part, self._now())
        try:
            yield
        finally:
            with self._lock:
                _, begun = self._open.pop(ticket)
                self._intervals.setdefault(part, []).append((begun, self._now()))

    def add(self, part: str, begun: float, ended: float) -> None:
        """Work of `part` that was timed elsewhere, by the same clock. What lies before the step does not count."""
        _check(part)
        if ended < begun:
            raise ValueError(f"{part} ended {begun - ended:.3f} s before it began")
        with self._lock:
            self._intervals.setdefault(part, []).append((begun, ended))

    def finish(self) -> StepTime:
        """The split of the step up to now. Work that is still open counts up to now."""
        with self._lock:
            now = self._now()
            intervals = {part: list(found) for part, found in self._intervals.items()}
            for part, begun in self._open.values():
                intervals.setdefault(part, []).append((begun, now))
        return split(self._start, now, intervals)


def split(start: float, end: float, intervals: dict[str, list[Interval]]) -> StepTime:
    """Split [start, end] by what worked when. Pure."""
    merged = {part: _merge(start, end, found) for part, found in intervals.items()}
    merged = {part: merged[part] for part in PARTS if merged.get(part)}
    edges = sorted(
        [(begun, 1, part) for part, found in merged.items() for begun, _ in found]
        + [(ended, -1, part) for part, found in merged.items() for _, ended in found]
    )
    alone = dict.fromkeys(merged, 0.0)
    working: set[str] = set()
    covered = 0.0
    before = start
    for moment, change, part in edges:
        length = moment - before
        if working and length > 0:
            covered += length
            for busy in working:
                alone[busy] += length / len(working)
        before = moment
        if change > 0:
            working.add(part)
        else:
            working.discard(part)
    seconds = end - start
    return StepTime(
        seconds=seconds,
        parts={part: sum(ended - begun for begun, ended in found) for part, found in merged.items()},
        alone=alone,
        overhead_s=max(0.0, seconds - covered),
    )


def _merge(start: float, end: float, intervals: Iterable[Interval]) -> list[Interval]:
    """The union of `intervals`, clipped to [start, end], as disjoint ascending intervals."""
    merged: list[Interval] = []
    for begun, ended in sorted((max(start, b), min(end, e)) for b, e in intervals):
        if ended <= begun:
            continue
        if merged and begun <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], ended))
        else:
            merged.append((begun, ended))
    return merged


def _check(part: str) -> None:
    if part not in PARTS:
        raise ValueError(f"unknown part of a step: {part!r} (one of {', '.join(PARTS)})")
