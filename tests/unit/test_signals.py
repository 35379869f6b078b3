"""A signal ends the run's task in order, whether the loop runs or is blocked at the moment."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator

import pytest

from rlvr.launch.signals import Interruption, ignored

pytestmark = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@pytest.fixture(autouse=True)
def handlers(number: signal.Signals) -> Iterator[None]:
    before = signal.getsignal(number)
    yield
    signal.signal(number, before)


async def run(interruption: Interruption, body: Callable[[], Awaitable[None]]) -> tuple[bool, float]:
    task = asyncio.ensure_future(body())
    interruption.cancels(task)
    started = time.monotonic()
    try:
        await task
    except asyncio.CancelledError:
        return True, time.monotonic() - started
    return False, time.monotonic() - started


def test_a_waiting_task_is_cancelled(number: signal.Signals) -> None:
    interruption = Interruption()

    async def body() -> None:
        os.kill(os.getpid(), number)
        await asyncio.sleep(30)

    cancelled, seconds = asyncio.run(run(interruption, body))
    assert cancelled
    assert seconds < 10
    assert interruption.received is number


def test_blocking_work_is_left_at_once(number: signal.Signals) -> None:
    interruption = Interruption()
    reached = False

    async def body() -> None:
        nonlocal reached
        with interruption.while_blocking():
            os.kill(os.getpid(), number)
            time.sleep(30)
            reached = True

    cancelled, seconds = asyncio.run(run(interruption, body))
    assert cancelled
    assert not reached
    assert seconds < 10
    assert interruption.received is number


def test_after_blocking_work_the_task_is_cancelled_again(number: signal.Signals) -> None:
    interruption = Interruption()

    async def body() -> None:
        with interruption.while_blocking():
            pass
        os.kill(os.getpid(), number)
        await asyncio.sleep(30)

    assert asyncio.run(run(interruption, body))[0]
    assert interruption.received is number


def test_a_second_signal_does_not_disturb_the_clean_up(number: signal.Signals) -> None:
    interruption = Interruption()
    cleaned = False

    async def body() -> None:
        nonlocal cleaned
        try:
            os.kill(os.getpid(), number)
            await asyncio.sleep(30)
        finally:
            os.kill(os.getpid(), number)
            await asyncio.sleep(0.05)
            cleaned = True

    assert asyncio.run(run(interruption, body))[0]
    assert cleaned


def test_a_run_that_is_ending_is_not_cut_short(number: signal.Signals) -> None:
    received: list[int] = []
    signal.signal(number, lambda received_number, _: received.append(received_number))
    with ignored():
        os.kill(os.getpid(), number)
        time.sleep(0.05)
    assert not received
    os.kill(os.getpid(), number)
    assert received == [number], "whoever handled it before handles it again"
