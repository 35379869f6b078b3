"""Accounting of groups: issued = trained + dropped + failed + in flight, at every moment.

A pure state machine; it knows ids and outcomes, and nothing of how a group is processed.
"""

from __future__ import annotations

from collections import Counter

from rlvr.records import Group, GroupState


class Accounts:
    """Books every group once when issued and once when it ends.

    The equation is checked against two independent sources: the counters, and the set of ids in flight.
    """

    def __init__(self) -> None:
        self._in_flight: set[str] = set()
        self.issued = 0
        self.trained = 0
        self.dropped: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()

    def issue(self, group: Group) -> None:
        """Book a new group. Raises ValueError for an id that is in flight already."""
        if group.id in self._in_flight:
            raise ValueError(f"group {group.id} was issued twice")
        self._in_flight.add(group.id)
        self.issued += 1
        self.check()

    def close(self, group: Group) -> None:
        """Book the end of a group, by its state. Raises ValueError unless it was in flight and has ended."""
        if group.id not in self._in_flight:
            raise ValueError(f"group {group.id} ended as {group.state}, but was not in flight")
        if group.state is GroupState.TRAINED:
            self.trained += 1
        elif group.state is GroupState.DROPPED:
            self.dropped[group.reason] += 1
        elif group.state is GroupState.FAILED:
            self.failed[group.reason] += 1
        else:
            raise ValueError(f"group {group.id} is {group.state}, which is no end")
        self._in_flight.remove(group.id)
        self.check()

    def check(self) -> None:
        """Raises RuntimeError when a group was lost or counted twice: a bug, never a user's error."""
        ended = self.trained + self.dropped.total() + self.failed.total()
        if self.issued != ended + len(self._in_flight):
            raise RuntimeError(f"{self.issued} groups issued, but {ended} ended and {len(self._in_flight)} in flight")

    def counts(self) -> dict[str, int]:
        """Groups by state, under the names of summary.json and metrics.jsonl."""
        return {
            "issued": self.issued,
            "trained": self.trained,
            "dropped": self.dropped.total(),
            "failed": self.failed.total(),
            "in_flight": len(self._in_flight),
        }
