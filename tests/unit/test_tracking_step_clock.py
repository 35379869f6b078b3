"""The split of a step's wall time."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.tracking.step_clock import PARTS, StepClock, split


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_overlapping_work_of_one_part_counts_once():
    time = Time()
    clock = StepClock(time)
    first, second = clock.working("rollout"), clock.working("rollout")
    first.__enter__()
    time.now += 2
    second.__enter__()
    time.now += 3
    first.__exit__(None, None, None)
    time.now += 1
    second.__exit__(None, None, None)
    time.now += 4
    found = clock.finish()
    assert found.seconds == 10
    assert found.parts == {"rollout": 6}
    assert found.overhead_s == 4
    assert found.overhead_share == pytest.approx(0.4)


def test_parts_overlap_but_their_split_does_not():
    found = split(0, 10, {"rollout": [(0, 6)], "learner": [(4, 8)], "reward": [(5, 6)]})
    assert found.parts == {"rollout": 6, "reward": 1, "learner": 4}
    assert found.overhead_s == 2
    assert found.alone["rollout"] == pytest.approx(4 + 1 / 2 + 1 / 3)
    assert found.alone["learner"] == pytest.approx(1 / 2 + 1 / 3 + 2)
    assert sum(found.alone.values()) + found.overhead_s == pytest.approx(10)


def test_a_failure_inside_the_work_ends_it():
    time = Time()
    clock = StepClock(time)
    with pytest.raises(RuntimeError), clock.working("reward"):
        time.now += 2
        raise RuntimeError
    time.now += 2
    assert clock.finish().parts == {"reward": 2}


def test_work_that_is_still_open_counts_up_to_the_end():
    time = Time()
    clock = StepClock(time)
    with clock.working("sync"):
        time.now += 5
        assert clock.finish().parts == {"sync": 5}


def test_work_timed_elsewhere_is_cut_to_the_step():
    time = Time()
    clock = StepClock(time)
    clock.add("reward", 90, 103)
    time.now = 110
    assert clock.finish().parts == {"reward": 3}
    with pytest.raises(ValueError, match="before it began"):
        clock.add("reward", 5, 4)


def test_an_unknown_part_is_refused():
    with pytest.raises(ValueError, match="unknown part"), StepClock().working("lunch"):
        pass


async def test_many_tasks_may_work_at_once():
    clock = StepClock()

    async def work() -> None:
        with clock.working("rollout"):
            await asyncio.sleep(0.001)

    await asyncio.gather(*(work() for _ in range(200)))
    found = clock.finish()
    assert 0 < found.parts["rollout"] <= found.seconds


_INTERVALS = st.lists(st.tuples(st.integers(-5, 30), st.integers(0, 12)).map(lambda t: (t[0], t[0] + t[1])), max_size=8)


@given(st.dictionaries(st.sampled_from(PARTS), _INTERVALS))
def test_the_split_agrees_with_counting_every_second(intervals):
    found = split(0, 20, intervals)
    busy = {
        part: {second for begun, ended in spans for second in range(max(0, begun), min(20, ended))}
        for part, spans in intervals.items()
    }
    assert found.parts == {part: len(seconds) for part, seconds in busy.items() if seconds}
    assert found.overhead_s == 20 - len(set().union(*busy.values()))
    assert sum(found.alone.values()) + found.overhead_s == pytest.approx(20)
