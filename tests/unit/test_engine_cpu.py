"""Which cores engines are bound to, on machines of any shape."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.engine.cpu import engine_cores, machine_cores, usable_cores, vllm_environment
from rlvr.errors import ConfigError


def test_one_engine_gets_every_core() -> None:
    assert engine_cores((0, 1), engines=1, index=0) == (0, 1)


def test_engines_on_one_machine_get_neighbouring_cores_of_their_own() -> None:
    assert [engine_cores(range(7), engines=3, index=i) for i in range(3)] == [(0, 1, 2), (3, 4), (5, 6)]


def test_more_engines_than_cores_take_turns() -> None:
    assert [engine_cores((4, 5), engines=3, index=i) for i in range(3)] == [(4,), (5,), (4,)]


def test_a_thread_count_is_kept_and_wraps_around() -> None:
    assert [engine_cores(range(4), engines=3, index=i, threads=2) for i in range(3)] == [(0, 1), (2, 3), (0, 1)]


def test_more_threads_than_cores_is_refused_with_the_key() -> None:
    with pytest.raises(ConfigError, match=r"rollout\.threads"):
        engine_cores((0, 1), engines=1, index=0, threads=3)


def test_an_engine_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match="engine 2 of 2"):
        engine_cores((0, 1), engines=2, index=2)


@given(st.sets(st.integers(0, 300), min_size=1, max_size=64), st.integers(1, 70))
def test_cores_are_divided_without_gap_or_overlap_while_there_are_enough(cores: set[int], engines: int) -> None:
    ordered = sorted(cores)
    parts = [engine_cores(ordered, engines=engines, index=index) for index in range(engines)]
    assert all(parts)
    if engines <= len(ordered):
        assert list(itertools.chain(*parts)) == ordered
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_hardware_threads_of_one_core_count_once() -> None:
    siblings = {0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5"}
    assert usable_cores([0, 1, 4, 5], siblings, "max 100000") == (0, 1)


def test_a_core_counts_even_if_only_its_second_hardware_thread_is_allowed() -> None:
    assert usable_cores([4, 5], {4: "0,4", 5: "1,5"}, "") == (4, 5)


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("200000 100000", 2), ("150000 100000", 2), ("50000 100000", 1), ("max 100000", 4), ("", 4), ("nonsense", 4)],
)
def test_the_quota_of_a_container_limits_the_threads(quota: str, expected: int) -> None:
    assert len(usable_cores(range(4), {}, quota)) == expected


def test_this_machine_has_cores() -> None:
    assert machine_cores()


def test_the_binding_lists_every_core() -> None:
    assert vllm_environment((0, 1, 5)) == {"VLLM_CPU_OMP_THREADS_BIND": "0,1,5"}
