"""Generated functions: seeded, splits disjoint, and every solution passes its own tests."""

from __future__ import annotations

import pytest

from rlvr.config import Config
from rlvr.errors import ConfigError
from rlvr.rewards import Sample
from rlvr.rewards.python import python
from rlvr.tasks import build
from rlvr.tasks.functions import KINDS, load
from rlvr.tasks.rows import BadRows
from rlvr.tasks.task import Splits


def config(**functions: object) -> Config:
    made = Config()
    made.task.name = "functions"
    for key, value in functions.items():
        setattr(made.task.functions, key, value)
    return made


def splits(**functions: object) -> Splits:
    return load(config(**functions), BadRows())


def test_every_solution_passes_its_tests_and_another_one_does_not():
    problems = splits(train_size=20, test_size=20).train
    for problem, other in zip(problems, problems[1:] + problems[:1], strict=True):
        assert python(Sample(f" {problem.answer}", problem.reference)).score == 1.0
        assert problem.answer != other.answer
        assert python(Sample("def nothing(): pass", problem.reference)).score == 0.0


def test_no_held_out_function_is_in_the_training_split():
    made = splits(train_size=2000, test_size=500)
    trained = {(problem.category, *problem.row["numbers"]) for problem in made.train}
    held_out = {(problem.category, *problem.row["numbers"]) for problem in made.test}
    assert not trained & held_out
    assert {problem.category for problem in made.train} == {problem.category for problem in made.test} == set(KINDS)


def test_the_same_seed_gives_the_same_problems():
    assert splits() == splits()
    other = config()
    other.run.seed = 1
    assert load(other, BadRows()) != splits()


def test_exemplars_show_functions_and_no_prompt_shows_tests():
    made = config(train_size=40, test_size=10)
    made.task.few_shot.k = 2
    made.task.answer_line = "{answer}"
    task = build(made)
    for prompt in task.test:
        assert prompt.text is not None and prompt.text.count("def ") == 2 and "expected" not in prompt.text


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ({"kinds": ["add", "fly"]}, "task.functions.kinds"),
        ({"kinds": ["add"], "train_size": 10**4}, "task.functions.train_size=10000, but there are only"),
        ({"tests": 1}, "task.functions.tests must be at least 2"),
    ],
)
def test_settings_that_make_no_sense_are_refused(functions, message):
    with pytest.raises(ConfigError, match=message):
        splits(**functions)
