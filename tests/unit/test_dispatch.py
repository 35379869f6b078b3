"""Dispatch of prompts over engines: least loaded, bounded, never to one that is out of service."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.engine.dispatch import Dispatcher
from rlvr.errors import InfrastructureError


def test_prompts_go_to_the_least_loaded_engine() -> None:
    dispatcher = Dispatcher(["a", "b"], limit=4)
    assert [dispatcher.acquire() for _ in range(4)] == ["a", "b", "a", "b"]
    dispatcher.release("b")
    dispatcher.release("b")
    assert [dispatcher.acquire() for _ in range(2)] == ["b", "b"]


def test_no_engine_gets_more_than_its_limit() -> None:
    dispatcher = Dispatcher(["a", "b"], limit=2)
    assert sorted(str(dispatcher.acquire()) for _ in range(4)) == ["a", "a", "b", "b"]
    assert dispatcher.acquire() is None
    dispatcher.release("a")
    assert dispatcher.acquire() == "a"


def test_a_retired_engine_gets_nothing_any_more() -> None:
    dispatcher = Dispatcher(["a", "b"], limit=2)
    dispatcher.retire("a", "it died")
    assert [dispatcher.acquire() for _ in range(3)] == ["b", "b", None]
    assert dispatcher.in_service == ["b"]


def test_the_first_reason_for_retiring_is_kept() -> None:
    dispatcher = Dispatcher(["a"], limit=1)
    dispatcher.retire("a", "it died")
    dispatcher.retire("a", "connection lost")
    assert dispatcher.out_of_service == {"a": "it died"}


def test_prompts_of_a_retired_engine_can_still_be_released() -> None:
    dispatcher = Dispatcher(["a", "b"], limit=1)
    assert dispatcher.acquire() == "a"
    dispatcher.retire("a", "it died")
    dispatcher.release("a")
    assert dispatcher.in_flight("a") == 0


def test_without_any_engine_the_error_says_why() -> None:
    dispatcher = Dispatcher(["a", "b"], limit=1)
    dispatcher.retire("a", "it died")
    dispatcher.retire("b", "it hangs")
    with pytest.raises(InfrastructureError, match=r"a: it died; b: it hangs"):
        dispatcher.acquire()


def test_an_engine_that_failed_a_prompt_is_avoided_even_when_it_is_the_emptiest() -> None:
    dispatcher = Dispatcher(["a", "b"], limit=1)
    assert dispatcher.acquire(avoid=["a"]) == "b"
    assert dispatcher.acquire(avoid=["a"]) is None


def test_the_only_engine_is_tried_again() -> None:
    assert Dispatcher(["a"], limit=1).acquire(avoid=["a"]) == "a"


def test_releasing_more_than_was_acquired_is_an_error() -> None:
    with pytest.raises(ValueError, match="no prompt in flight"):
        Dispatcher(["a"], limit=1).release("a")


@pytest.mark.parametrize(("engines", "limit"), [([], 1), (["a", "a"], 1), (["a"], 0)])
def test_a_senseless_dispatcher_is_refused(engines: list[str], limit: int) -> None:
    with pytest.raises(ValueError, match="cannot dispatch"):
        Dispatcher(engines, limit)


@given(st.lists(st.sampled_from(["acquire", "release", "retire"]), max_size=60), st.integers(1, 4), st.data())
def test_the_count_of_prompts_in_flight_always_holds(actions: list[str], limit: int, data: st.DataObject) -> None:
    names = ["a", "b", "c"]
    dispatcher = Dispatcher(names, limit)
    held: list[str] = []
    for action in actions:
        if action == "acquire" and dispatcher.in_service:
            engine = dispatcher.acquire()
            full = all(dispatcher.in_flight(name) >= limit for name in dispatcher.in_service)
            assert (engine is None) == (full and engine is None)
            if engine is not None:
                assert engine in dispatcher.in_service
                held.append(engine)
        elif action == "release" and held:
            dispatcher.release(held.pop(data.draw(st.integers(0, len(held) - 1))))
        elif action == "retire":
            dispatcher.retire(data.draw(st.sampled_from(names)), "drawn")
        assert all(dispatcher.in_flight(name) == held.count(name) <= limit for name in names)
