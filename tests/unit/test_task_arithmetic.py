"""Generated problems are right, reproducible, and never in both splits."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr.config import Config
from rlvr.errors import ConfigError
from rlvr.tasks import build

OPERATIONS = ["add", "subtract", "multiply", "divide"]


def config(seed=0, operations=OPERATIONS, difficulties=(1, 2), train=200, test=50) -> Config:
    made = Config()
    made.run.seed = seed
    made.task.arithmetic.operations = list(operations)
    made.task.arithmetic.difficulties = list(difficulties)
    made.task.arithmetic.train_size = train
    made.task.arithmetic.test_size = test
    return made


def identity(prompt) -> tuple:
    """What makes two problems the same, whatever their wording."""
    operation, operands = prompt.extra["operation"], prompt.extra["operands"]
    return (operation, *(sorted(operands) if operation in ("add", "multiply") else operands))


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    operations=st.lists(st.sampled_from(OPERATIONS), min_size=1, unique=True),
    difficulties=st.lists(st.integers(1, 4), min_size=1, unique=True),
)
def test_splits_are_disjoint_full_and_right(seed, operations, difficulties):
    task = build(config(seed, operations, difficulties, train=100, test=30))
    assert (len(task.train), len(task.test)) == (100, 30)
    assert not {identity(p) for p in task.train} & {identity(p) for p in task.test}
    for split in (task.train, task.test):
        assert len({prompt.text for prompt in split}) == len(split)
    for prompt in task.train + task.test:
        a, b = prompt.extra["operands"]
        expected = {"add": a + b, "subtract": a - b, "multiply": a * b, "divide": a / b}[prompt.extra["operation"]]
        assert prompt.reference == str(int(expected)) and int(expected) == expected >= 0
        assert {str(a), str(b)} == set(re.findall(r"\d+", prompt.text))
        assert prompt.category == f"{prompt.extra['operation']}/{prompt.extra['difficulty']}"


def test_the_seed_decides_everything():
    same, again, other = (build(config(seed=seed)) for seed in (3, 3, 4))
    assert same.train == again.train and same.test == again.test
    assert same.train != other.train


def test_categories_share_a_split_equally_until_one_runs_out():
    counts = Counter(prompt.category for prompt in build(config(train=1600, test=160)).train)
    small = {"add/1", "subtract/1", "multiply/1", "divide/1"}
    assert set(counts) == small | {"add/2", "subtract/2", "multiply/2", "divide/2"}
    large = {counts[name] for name in set(counts) - small}
    assert max(large) - min(large) <= 1
    assert min(large) >= max(counts[name] for name in small)


def test_the_first_problems_of_a_split_show_every_category():
    task = build(config(test=48))
    assert Counter(prompt.category for prompt in task.test[:8]).most_common(1)[0][1] == 1


@pytest.mark.parametrize(("show_work", "answer"), [(False, r"#### \d+"), (True, r"(\d+) \+ (\d+) = (\d+)\n#### \3")])
def test_a_few_shot_prompt_ends_where_the_answer_begins(show_work, answer):
    made = config(operations=["add"], difficulties=[2])
    made.task.few_shot.k = 2
    made.task.arithmetic.show_work = show_work
    task = build(made)
    *shots, problem = task.test[0].text.split("\n\n")
    for shot in shots:
        assert re.fullmatch(rf"Question: .*\d+.*\d+.*\nAnswer: {answer}", shot)
    assert problem.endswith("\nAnswer:")
    assert "\n\n" in task.stop
    assert not {identity(p) for p in task.train} & {("add", *sorted(shot.row["operands"])) for shot in task.exemplars}


def test_more_problems_than_there_are_is_an_error_that_says_how_many():
    with pytest.raises(ConfigError, match=r"train_size=5000, but there are only \d+ different problems"):
        build(config(operations=["add"], difficulties=[1], train=5000))


def test_all_mistakes_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        build(config(operations=["add", "power"], difficulties=[0, 5], train=0))
    assert len(caught.value.problems) == 4


def test_wordings_are_plain_questions_or_stories_or_both():
    starts = ("What is", "Add", "Subtract", "Multiply", "Divide")
    plain = {}
    for kind in ("plain", "stories", "all"):
        made = config()
        made.task.arithmetic.wordings = kind
        questions = [prompt.text.removeprefix("Question: ") for prompt in build(made).train]
        plain[kind] = sum(question.startswith(starts) for question in questions) / len(questions)
    assert plain["plain"] == 1
    assert plain["stories"] == 0
    assert 0 < plain["all"] < 1
