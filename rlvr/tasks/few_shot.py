"""Few-shot prompts: which exemplars are shown, and how problem and exemplars become text or messages.

Must not know where problems come from. No tokenizer here: a chat template is applied by whoever has the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from rlvr.config import TaskConfig
from rlvr.errors import ConfigError
from rlvr.records import Message, Prompt
from rlvr.tasks.task import Problem

#: Stands for what opens the next problem in a plain prompt: it is where a base model's answer has ended.
NEXT_PROBLEM = "\n{question_label}"
#: Stands for the final answer in task.answer_line.
ANSWER = "{answer}"


def choose(problems: Sequence[Problem], k: int, seed: int) -> tuple[tuple[Problem, ...], list[Problem]]:
    """(k exemplars, the problems left to train on). Fixed by `seed`.

    Categories take turns, so that few exemplars show as many of them as possible. Problems that read like an
    exemplar leave the training split with it. Raises ConfigError when fewer than one problem would be left.
    """
    if k == 0:
        return (), list(problems)
    if k >= len(problems):
        raise ConfigError(
            f"task.few_shot.k={k} needs more than {k} problems in the training split, which has {len(problems)}"
        )
    shuffled = Random(f"few-shot/{seed}").sample(list(problems), len(problems))
    seen: dict[str, int] = {}
    turns = []
    for place, problem in enumerate(shuffled):
        turns.append((seen.setdefault(problem.category, 0), place))
        seen[problem.category] += 1
    exemplars: list[Problem] = []
    for _, place in sorted(turns):
        if all(shuffled[place].question != exemplar.question for exemplar in exemplars):
            exemplars.append(shuffled[place])
        if len(exemplars) == k:
            break
    shown = {exemplar.question for exemplar in exemplars}
    rest = [problem for problem in problems if problem.question not in shown]
    if len(exemplars) < k or not rest:
        raise ConfigError(f"task.few_shot.k={k} needs more than {k} different problems in the training split")
    return tuple(exemplars), rest


def render(problem: Problem, exemplars: Sequence[Problem], config: TaskConfig) -> Prompt:
    """The prompt for `problem`, as plain text or as the messages of a conversation (task.template)."""
    extra = {**problem.row, "file": problem.file, "line": problem.line}
    chat = config.template == "chat"
    return Prompt(
        id=problem.id,
        reference=problem.reference,
        category=problem.category,
        text=None if chat else _text(problem, exemplars, config),
        messages=_conversation(problem, exemplars, config) if chat else None,
        extra=extra,
    )


def answer_text(problem: Problem, answer_line: str) -> str:
    """How an exemplar answers: the worked solution if there is one, then the line with the final answer."""
    last = answer_line.replace(ANSWER, problem.answer or problem.reference)
    return f"{problem.solution}\n{last}" if problem.solution else last


def stop_strings(config: TaskConfig, defaults: tuple[str, ...]) -> tuple[str, ...]:
    """task.stop; without it the task's defaults for plain text, and nothing for a chat, whose turns end by token."""
    if config.stop:
        return tuple(config.stop)
    if config.template != "plain":
        return ()
    return tuple(stop.replace(NEXT_PROBLEM, f"\n{config.question_label}") for stop in defaults)


def _text(problem: Problem, exemplars: Sequence[Problem], config: TaskConfig) -> str:
    """No blank after the last answer label: the tokens of an answer begin with it."""
    ask, answer = config.question_label, config.answer_label
    blocks = [config.instruction] if config.instruction else []
    blocks += [f"{ask} {shot.question}\n{answer} {answer_text(shot, config.answer_line)}" for shot in exemplars]
    blocks.append(f"{ask} {problem.question}\n{answer}")
    return "\n\n".join(blocks)


def _conversation(problem: Problem, exemplars: Sequence[Problem], config: TaskConfig) -> tuple[Message, ...]:
    messages: list[Message] = [{"role": "system", "content": config.system}] if config.system else []
    for shot in exemplars:
        messages.append({"role": "user", "content": _request(shot, config)})
        messages.append({"role": "assistant", "content": answer_text(shot, config.answer_line)})
    messages.append({"role": "user", "content": _request(problem, config)})
    return tuple(messages)


def _request(problem: Problem, config: TaskConfig) -> str:
    return f"{config.instruction}\n\n{problem.question}" if config.instruction else problem.question
