"""A task in Spanish, several countries in one file: prompts, exemplars, reward and locale belong together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlvr.compose import compose
from rlvr.rewards import Reward, Sample
from rlvr.rewards.audit import right_spellings, wrong_spellings
from rlvr.tasks import build
from rlvr.tasks.few_shot import answer_text

PROBLEMS = Path(__file__).resolve().parents[1] / "data" / "problemas"
ROWS = [
    json.loads(line)
    for split in ("train", "test")
    for line in (PROBLEMS / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
]


def task_and_reward():
    config = compose("gsm8k_es", [f"task.path={PROBLEMS}"]).config
    return build(config), Reward.from_config(config.reward)


def test_the_prompt_is_spanish_and_ends_where_the_next_problem_would_begin() -> None:
    task, _ = task_and_reward()
    text = task.train[0].text or ""
    assert text.startswith("Resuelve los problemas paso a paso.")
    assert text.endswith("\nSolución:") and text.count("Pregunta:") == 5
    assert text.count("La respuesta es ") == 4
    assert "Question" not in text and "Answer" not in text
    assert task.stop == ("\nPregunta:",)


def test_the_exemplars_get_full_marks_from_the_reward_of_their_own_task() -> None:
    task, reward = task_and_reward()
    config = compose("gsm8k_es", [f"task.path={PROBLEMS}"]).config
    for shot in task.exemplars:
        completion = answer_text(shot, config.task.answer_line)
        sample = Sample(completion, shot.reference, locale=str(shot.row["locale"]))
        parts = reward.grade(sample).parts
        assert (parts["answer"].score, parts["format"].score) == (1.0, 1.0), parts
        assert "contradiction" not in parts["steps"].evidence


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["locale"])
def test_every_solution_and_spelling_is_judged_by_the_country_of_its_problem(row: dict[str, str]) -> None:
    _, reward = task_and_reward()
    solution = f"{row['solution']}\nLa respuesta es {row['answer']}."

    def parts(completion: str):
        return reward.grade(Sample(completion, row["answer"], locale=row["locale"])).parts

    judged = parts(solution)
    assert judged["answer"].score == 1.0
    assert judged["steps"].score == min(1.0, (row["solution"].count("=")) / 2), judged["steps"].evidence
    for kind, completion in right_spellings(row["answer"], row["locale"]):
        assert parts(completion)["answer"].score == 1.0, kind
    for kind, completion in wrong_spellings(row["answer"], row["locale"]):
        assert parts(completion)["answer"].score == 0.0, kind


def test_a_chat_has_a_spanish_system_prompt() -> None:
    system = "Termina con una línea que diga: La respuesta es <número>."
    path = compose(
        "gsm8k_es", [f"task.path={PROBLEMS}", "task.template=chat", f"task.system={system}", "task.few_shot.k=0"]
    )
    messages = build(path.config).train[0].messages or ()
    assert messages[0] == {"role": "system", "content": system}
    assert "Pregunta" not in messages[-1]["content"]
