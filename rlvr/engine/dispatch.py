"""Which engine gets the next prompt: least loaded first, bounded, and never one that is out of service.

A pure state machine without I/O or clocks. Must not know what an engine is beyond its name.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rlvr.errors import InfrastructureError


class Dispatcher:
    """Counts the prompts in flight on each engine. `limit` is the most that one engine may have."""

    def __init__(self, engines: Sequence[str], limit: int) -> None:
        if not engines or len(set(engines)) != len(engines) or limit < 1:
            raise ValueError(f"cannot dispatch to {list(engines)} with at most {limit} prompts each")
        self._limit = limit
        self._in_flight = dict.fromkeys(engines, 0)
        self._out_of_service: dict[str, str] = {}

    @property
    def in_service(self) -> list[str]:
        """Engines that may get prompts, in the order they were given."""
        return [engine for engine in self._in_flight if engine not in self._out_of_service]

    @property
    def out_of_service(self) -> dict[str, str]:
        """Why each of the others may not."""
        return dict(self._out_of_service)

    def in_flight(self, engine: str) -> int:
        """Prompts that `engine` is working on."""
        return self._in_flight[engine]

    def acquire(self, avoid: Collection[str] = ()) -> str | None:
        """The engine that the next prompt goes to, now one prompt fuller; None while all of them are full.

        Engines in `avoid` (they failed this prompt before) are taken only when no other is in service: with a
        free one elsewhere to wait for, trying the same one again would spend a retry on the same fault.
        Raises InfrastructureError when none is in service.
        """
        candidates = self.in_service
        if not candidates:
            reasons = "; ".join(f"{engine}: {reason}" for engine, reason in self._out_of_service.items())
            raise InfrastructureError(f"no engine is left in service. {reasons}")
        candidates = [engine for engine in candidates if engine not in avoid] or candidates
        engine = min(candidates, key=lambda name: self._in_flight[name])  # the first of equals
        if self._in_flight[engine] >= self._limit:
            return None
        self._in_flight[engine] += 1
        return engine

    def release(self, engine: str) -> None:
        """A prompt that `acquire` gave to `engine` is done there, one way or the other."""
        if self._in_flight[engine] == 0:
            raise ValueError(f"{engine} has no prompt in flight to release")
        self._in_flight[engine] -= 1

    def retire(self, engine: str, reason: str) -> None:
        """Take `engine` out of service. The first reason counts: later failures follow from it."""
        if engine not in self._in_flight:
            raise ValueError(f"there is no engine {engine}")
        self._out_of_service.setdefault(engine, reason)
