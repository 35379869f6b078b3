"""Verifiers are found by name, and everything wrong with them is said at start, naming the key."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlvr.config import CriterionConfig, RewardConfig
from rlvr.errors import ConfigError
from rlvr.rewards import Reward, Sample
from rlvr.rewards import reward as register
from rlvr.rewards.composite import CriterionSpec
from rlvr.rewards.registry import names

MODULE = """
import os.path

from rlvr.rewards import Sample, reward

LIMIT = 3

def short(sample, *, limit: int = 10, scale=1.0):
    return scale if len(sample.completion) <= limit else 0.0

def needs(sample, *, word):
    return float(word in sample.completion)

def anything(sample, **options):
    return float(len(options))

def nothing():
    return 1.0

async def later(sample):
    return 1.0

@reward("my_named", version="7")
def named(sample):
    return 0.5

class Holder:
    @staticmethod
    def inner(sample):
        return 0.25
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module of the user's, under a name of its own for each test."""
    name = f"mine_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE.replace("my_named", f"my_named_{name}"))
    (tmp_path / "broken_reward.py").write_text("x = 1\nraise RuntimeError('no licence')\n")
    (tmp_path / "hungry_reward.py").write_text("import no_such_package_at_all\n")
    (tmp_path / "exits_reward.py").write_text("import sys\nsys.exit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    for module in (name, "broken_reward", "hungry_reward", "exits_reward"):
        sys.modules.pop(module, None)


def problems(verifier: str, **options: object) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        Reward.of([CriterionSpec("answer", verifier, 1.0, options)])
    return raised.value.problems


def test_the_builtin_verifiers_are_registered() -> None:
    assert {"numeric_answer", "answer_format"} <= set(names())


def test_an_unknown_name_is_refused_with_a_suggestion() -> None:
    (problem,) = problems("numeric_anser")
    assert problem.startswith("reward.criteria.answer.verifier:")
    assert "numeric_answer?" in problem


@pytest.mark.parametrize(
    ("verifier", "says"),
    [
        ("no_such_module:f", "no module 'no_such_module'"),
        ("{mine}:shrt", "Did you mean short?"),
        ("{mine}:LIMIT", "is a int, not a function"),
        ("{mine}:later", "async"),
        ("{mine}:nothing", "takes no sample"),
        ("{mine}:", "not of the form module:function"),
        (":f", "not of the form module:function"),
        ("broken_reward:f", "RuntimeError: no licence"),
        ("broken_reward:f", "broken_reward.py:2"),
        ("hungry_reward:f", "needs 'no_such_package_at_all'"),
        ("exits_reward:f", "SystemExit: 3"),
    ],
)
def test_a_function_that_cannot_be_used_is_refused_at_start(mine: str, verifier: str, says: str) -> None:
    (problem,) = problems(verifier.format(mine=mine))
    assert problem.startswith("reward.criteria.answer.verifier:")
    assert says in problem


def test_options_are_checked_against_the_signature(mine: str) -> None:
    (problem,) = problems(f"{mine}:short", limt=3)
    assert problem.startswith("reward.criteria.answer.options.limt:")
    assert "Did you mean limit?" in problem
    (problem,) = problems(f"{mine}:needs")
    assert problem.startswith("reward.criteria.answer.options.word:")
    (problem,) = problems("numeric_answer", anywere=True)
    assert "anywhere?" in problem
    assert "sample" in problems(f"{mine}:short", sample=3)[0]


@pytest.mark.parametrize(
    ("verifier", "option", "value"),
    [
        ("numeric_answer", "percent", "maybe"),
        ("numeric_answer", "anywhere", "yes"),
        ("numeric_answer", "locale", "xx"),
        ("answer_format", "marker", "###"),
    ],
)
def test_values_of_builtin_options_are_checked_at_start(verifier: str, option: str, value: object) -> None:
    (problem,) = problems(verifier, **{option: value})
    assert problem.startswith("reward.criteria.answer.options")
    assert option in problem


def test_all_problems_are_reported_at_once(mine: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Reward.of(
            [
                CriterionSpec("a", "nope"),
                CriterionSpec("b", f"{mine}:short", float("nan"), {"x": 1, "y": 2}),
                CriterionSpec("c", "no_such_module:f"),
            ]
        )
    assert [problem.split(":")[0] for problem in raised.value.problems] == [
        "reward.criteria.a.verifier",
        "reward.criteria.b.weight",
        "reward.criteria.b.options.x",
        "reward.criteria.b.options.y",
        "reward.criteria.c.verifier",
    ]


def test_a_reward_without_criteria_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"reward\.criteria"):
        Reward.of([])


def test_a_users_function_takes_any_option_it_declares(mine: str) -> None:
    config = RewardConfig(
        criteria={
            "answer": CriterionConfig(f"{mine}:short", 1.0, {"limit": 3, "scale": 0.5}),
            "any": CriterionConfig(f"{mine}:anything", 1.0, {"p": 1, "q": [1, 2]}),
            "inner": CriterionConfig(f"{mine}:Holder.inner"),
        }
    )
    verdict = Reward.from_config(config).grade(Sample("abc"))
    assert [part.score for part in verdict.parts.values()] == [0.5, 2.0, 0.25]


def test_a_verdict_names_verifier_version_and_options(mine: str, tmp_path: Path) -> None:
    def identity(verifier: str, **options: object) -> str:
        return Reward.of([CriterionSpec("answer", verifier, 1.0, options)]).identities[0]

    assert identity("numeric_answer").startswith("numeric_answer@3#")
    assert identity("numeric_answer") == identity("numeric_answer")
    assert identity("numeric_answer") != identity("numeric_answer", anywhere=True)
    assert identity(f"{mine}:named").startswith(f"{mine}:named@7#")
    before = identity(f"{mine}:short")
    file = tmp_path / f"{mine}.py"
    file.write_text(file.read_text().replace("<= limit", "< int(limit)"))  # another size, so no stale bytecode
    sys.modules.pop(mine)
    linecache.clearcache()
    assert identity(f"{mine}:short") != before, "a changed function is another verifier"


def test_two_functions_cannot_share_a_name() -> None:
    with pytest.raises(ValueError, match="exists already"):

        @register("numeric_answer")
        def other(sample: Sample) -> float:
            return 1.0
