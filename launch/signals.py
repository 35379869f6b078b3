"""Ctrl-C and SIGTERM end a run in order: they cancel its task, once.

While the event loop runs, a signal cancels the task; while something blocks the loop (a model being converted or
downloaded), it is raised right there. Knows nothing of runs.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Which signal asked this process to end, if one did."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    def cancels(self, task: asyncio.Task[None]) -> None:
        """From now on a signal cancels `task`. Called again after anything that installs handlers of its own."""

        def cancel(number: signal.Signals) -> None:
            if self.received is None:
                self.received = number
                task.cancel()

        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, cancel, number)

    @contextmanager
    def while_blocking(self) -> Iterator[None]:
        """For code between two awaits that takes long: a signal raises CancelledError in it, at once."""
        task = asyncio.current_task()
        assert task is not None  # we are called from one

        def interrupt(number: int, _frame: FrameType | None) -> None:
            if self.received is None:
                self.received = signal.Signals(number)
                raise asyncio.CancelledError

        for number in _SIGNALS:
            signal.signal(number, interrupt)
        try:
            yield
        finally:
            self.cancels(task)


@contextmanager
def ignored() -> Iterator[None]:
    """For the end of a run, which is bounded by deadlines: whoever asks again to end it must not cut it short."""
    # None: a handler that Python did not install, so cannot put back.
    before = {number: signal.signal(number, signal.SIG_IGN) or signal.SIG_DFL for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
