"""The order of prompts: fair, reproducible, and continued exactly after a restart."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.errors import ConfigError, DataError
from rlvr.records import Prompt
from rlvr.tasks import Sampler


def prompts(sizes: list[int]) -> list[Prompt]:
    """One category of each size."""
    return [
        Prompt(id=f"{c}-{i}", reference="", text="t", category=f"c{c}")
        for c, size in enumerate(sizes)
        for i in range(size)
    ]


def draw(sampler: Sampler, n: int) -> list[str]:
    return [sampler.next().id for _ in range(n)]


SIZES = st.lists(st.integers(1, 7), min_size=2, max_size=5)


@given(sizes=SIZES, seed=st.integers(0, 2**32), epochs=st.integers(1, 3))
def test_every_prompt_comes_once_per_epoch(sizes, seed, epochs):
    pool = prompts(sizes)
    sampler = Sampler(pool, seed)
    for _ in range(epochs):
        assert sorted(draw(sampler, len(pool))) == sorted(prompt.id for prompt in pool)


@given(sizes=SIZES, seed=st.integers(0, 2**32), balance=st.booleans(), before=st.integers(0, 40))
def test_a_restored_sampler_continues_exactly(sizes, seed, balance, before):
    pool = prompts(sizes)
    sampler = Sampler(pool, seed, balance)
    draw(sampler, before)
    state = json.loads(json.dumps(sampler.state()))
    expected = draw(sampler, 30)
    fresh = Sampler(pool[::-1], seed, balance)  # the order of rows in the file does not matter
    fresh.restore(state)
    assert draw(fresh, 30) == expected


@given(sizes=SIZES, seed=st.integers(0, 2**32), rounds=st.integers(1, 12))
def test_balanced_rounds_visit_each_category_once_and_each_prompt_before_any_again(sizes, seed, rounds):
    sampler = Sampler(prompts(sizes), seed, balance=True)
    drawn: Counter[str] = Counter()
    for _ in range(rounds):
        ids = draw(sampler, len(sizes))
        assert sorted(id_.split("-")[0] for id_ in ids) == sorted(str(c) for c in range(len(sizes)))
        drawn.update(ids)
    for c, size in enumerate(sizes):
        counts = [drawn[f"{c}-{i}"] for i in range(size)]
        assert max(counts) - min(counts) <= 1


def test_epochs_and_seeds_shuffle_differently():
    pool = prompts([40])
    sampler = Sampler(pool, seed=0)
    first, second = draw(sampler, 40), draw(sampler, 40)
    assert first != second
    assert first != [prompt.id for prompt in pool]
    assert draw(Sampler(pool, seed=1), 40) != first


def test_the_order_is_the_same_in_another_process():
    program = (
        "from tests.unit.test_sampler import *;"
        "print(draw(Sampler(prompts([5, 5]), 7), 20), draw(Sampler(prompts([5, 5]), 7, True), 20))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    here = f"{draw(Sampler(prompts([5, 5]), 7), 20)} {draw(Sampler(prompts([5, 5]), 7, True), 20)}"
    assert done.stdout.strip() == here


def test_the_state_is_small_and_tells_the_position():
    sampler = Sampler(prompts([3, 2]), seed=9, balance=True)
    draw(sampler, 5)
    state = sampler.state()
    assert (state["seed"], state["drawn"], state["epoch"]) == (9, 5, 0)
    assert sum(state["positions"].values()) == 5
    assert len(json.dumps(state)) < 200


@pytest.mark.parametrize(
    ("sampler", "changed"),
    [
        (Sampler(prompts([3, 3]), 1), "run.seed"),
        (Sampler(prompts([3, 3]), 0, True), "task.balance"),
        (Sampler(prompts([3, 4]), 0), "the training prompts"),
    ],
)
def test_a_state_of_something_else_is_refused(sampler, changed):
    state = Sampler(prompts([3, 3]), 0).state()
    with pytest.raises(DataError, match=changed):
        sampler.restore(state)


def test_a_damaged_state_is_refused():
    sampler = Sampler(prompts([3]), 0)
    with pytest.raises(DataError, match="damaged"):
        sampler.restore({**sampler.state(), "positions": {}})


def test_no_prompts_equal_ids_and_balance_without_categories_are_refused():
    with pytest.raises(DataError, match="no prompts"):
        Sampler([], 0)
    with pytest.raises(DataError, match="same id"):
        Sampler(prompts([1]) * 2, 0)
    with pytest.raises(ConfigError, match=r"task\.balance"):
        Sampler(prompts([3]), 0, balance=True)
