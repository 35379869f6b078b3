"""Which exemplars are chosen, and what the model is shown."""

from __future__ import annotations

import pytest

from rlvr.config import Config, TaskConfig
from rlvr.errors import ConfigError
from rlvr.tasks import few_shot
from rlvr.tasks.task import Problem


def problems(n: int, categories: int = 1) -> list[Problem]:
    return [Problem(f"train/{i}", f"{i} + 0?", str(i), f"{i} + 0 = {i}", f"c{i % categories}") for i in range(n)]


def config(**settings) -> TaskConfig:
    task = Config().task
    for name, value in settings.items():
        setattr(task, name, value)
    return task


def test_exemplars_leave_the_training_split_and_are_fixed_by_the_seed():
    chosen, rest = few_shot.choose(problems(20), 4, seed=1)
    assert len(chosen) == 4 and len(rest) == 16
    assert not {shot.id for shot in chosen} & {problem.id for problem in rest}
    assert few_shot.choose(problems(20), 4, seed=1)[0] == chosen
    assert any(few_shot.choose(problems(20), 4, seed=seed)[0] != chosen for seed in range(2, 6))


def test_categories_take_turns_among_the_exemplars():
    for seed in range(10):
        chosen, _ = few_shot.choose(problems(40, categories=4), 4, seed)
        assert {shot.category for shot in chosen} == {"c0", "c1", "c2", "c3"}


def test_a_problem_that_reads_like_an_exemplar_is_not_trained_on():
    doubled = problems(5) + [Problem(f"train/again-{i}", f"{i} + 0?", str(i)) for i in range(5)]
    chosen, rest = few_shot.choose(doubled, 2, seed=0)
    assert len({shot.question for shot in chosen}) == 2
    assert not {shot.question for shot in chosen} & {problem.question for problem in rest}
    assert len(rest) == 6


@pytest.mark.parametrize("k", [5, 6])
def test_more_exemplars_than_the_split_can_spare_is_an_error(k):
    with pytest.raises(ConfigError, match=rf"few_shot\.k={k} needs more than {k} problems .* has 5"):
        few_shot.choose(problems(5), k, seed=0)


def test_identical_questions_do_not_count_as_different_exemplars():
    with pytest.raises(ConfigError, match="different problems"):
        few_shot.choose([Problem(f"train/{i}", "1 + 1?", "2") for i in range(9)], 2, seed=0)


def test_plain_text_is_instruction_exemplars_and_an_open_answer():
    shot, problem = problems(2)
    prompt = few_shot.render(problem, [shot], config(instruction="Solve."))
    assert prompt.messages is None
    assert prompt.text == "Solve.\n\nQuestion: 0 + 0?\nAnswer: 0 + 0 = 0\n#### 0\n\nQuestion: 1 + 0?\nAnswer:"


def test_the_answer_line_is_the_configured_one_and_stands_alone_without_a_solution():
    task = config(answer_line="The answer is {answer}.")
    prompt = few_shot.render(problems(2)[1], [Problem("x", "2 + {answer}?", "{b}")], task)
    assert prompt.text.startswith("Question: 2 + {answer}?\nAnswer: The answer is {b}.\n\n")


def test_a_chat_alternates_turns_and_ends_with_the_problem():
    shot, problem = problems(2)
    prompt = few_shot.render(problem, [shot], config(template="chat", system="You calculate.", instruction="Solve."))
    assert prompt.text is None
    assert prompt.messages == (
        {"role": "system", "content": "You calculate."},
        {"role": "user", "content": "Solve.\n\n0 + 0?"},
        {"role": "assistant", "content": "0 + 0 = 0\n#### 0"},
        {"role": "user", "content": "Solve.\n\n1 + 0?"},
    )


def test_stop_strings_default_to_the_tasks_own_for_text_only():
    assert few_shot.stop_strings(config(), ("\nQuestion:",)) == ("\nQuestion:",)
    assert few_shot.stop_strings(config(template="chat"), ("\nQuestion:",)) == ()
    assert few_shot.stop_strings(config(stop=["END"]), ("\nQuestion:",)) == ("END",)


def test_the_default_stop_string_is_what_opens_the_next_problem():
    for label in ("Question:", "Pregunta:"):
        task = config(question_label=label)
        prompt = few_shot.render(problems(2)[1], problems(1), task)
        (stop,) = few_shot.stop_strings(task, (few_shot.NEXT_PROBLEM,))
        assert stop == f"\n{label}" and stop in prompt.text
