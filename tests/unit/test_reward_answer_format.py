"""The form is full, single, and at the end; nothing else has it."""

from __future__ import annotations

import pytest

from rlvr.records import Status
from rlvr.rewards import Sample
from rlvr.rewards.answer_format import answer_format


def score(text: str, marker: str, *, truncated: bool = False) -> float | None:
    return answer_format(Sample(text, truncated=truncated), marker=marker).score


@pytest.mark.parametrize(
    ("marker", "text"),
    [
        ("####", "3+4=7\n#### 7"),
        ("####", "#### 7 clips\n\n"),
        ("####", "<think>#### 8</think>\n#### 7"),
        ("boxed", "so \\boxed{7}."),
        ("boxed", "\\[\n\\boxed{7}\n\\]"),
        ("boxed", "$$\\boxed{\\frac{1}{2}}$$"),
        ("answer_is", "The answer is 7."),
        ("answer_is", "Answer: 7"),
        ("answer_tag", "so <answer>7</answer>"),
    ],
)
def test_the_form_scores(marker: str, text: str) -> None:
    assert score(text, marker) == 1.0


@pytest.mark.parametrize(
    ("marker", "text"),
    [
        ("####", ""),
        ("####", "7"),
        ("####", "####"),
        ("####", "#### \n"),
        ("####", "#### ."),
        ("####", "### 7"),
        ("####", "#### 7\n#### 7"),
        ("####", "#### 7\nand more"),
        ("####", "<think>#### 7"),
        ("####", "<think>#### 7</think>"),
        ("####", "\\boxed{7}"),
        ("boxed", "\\boxed{}"),
        ("boxed", "\\boxed{7"),
        ("boxed", "\\boxed{7} \\boxed{7}"),
        ("boxed", "\\boxed{7} \\boxed{"),
        ("boxed", "\\boxed{7}\nQuestion: 3+4"),
        ("answer_is", "The answer is 7. The answer is 7."),
        ("answer_is", "The answer is"),
        ("answer_is", "The answer is 7.\nSo there."),
        ("answer_tag", "<answer></answer>"),
        ("answer_tag", "<answer> </answer>"),
        ("answer_tag", "<answer>7"),
        ("answer_tag", "7</answer>"),
        ("answer_tag", "<answer><answer>7</answer></answer>"),
        ("answer_tag", "<answer>7</answer>\nmore"),
    ],
)
def test_anything_else_does_not(marker: str, text: str) -> None:
    assert score(text, marker) == 0.0


def test_a_truncated_completion_has_not_come_to_its_end() -> None:
    verdict = answer_format(Sample("#### 7", truncated=True))
    assert (verdict.score, verdict.status) == (0.0, Status.TRUNCATED)


THINK_RIGHT = [
    ("think_answer", "<think>3+4</think><answer>7</answer>"),
    ("think_answer", "<think>\n3+4\n</think>\n\n<answer>\n7\n</answer>\n"),
    ("think_boxed", "<think>3+4</think>So \\boxed{7}."),
    ("think_####", "<think>3+4</think>\n3+4=7\n#### 7"),
    ("think_answer_is", "<think>#### 8</think>\nThe answer is 7."),
    ("think_answer_is", "<think>hm</think>La respuesta es 7."),
]
THINK_WRONG = [
    ("think_answer", "<think></think><answer>7</answer>"),
    ("think_answer", "<think> \n...\n</think><answer>7</answer>"),
    ("think_answer", "<answer>7</answer>"),
    ("think_answer", "<think>a</think><think>b</think><answer>7</answer>"),
    ("think_answer", "<think>a<think>b</think><answer>7</answer>"),
    ("think_answer", "<think>a</think></think><answer>7</answer>"),
    ("think_answer", "<think>a</think><answer></answer>"),
    ("think_answer", "<think>a</think><answer>7</answer><answer>7</answer>"),
    ("think_answer", "<think>a</think><answer>7</answer> and more"),
    ("think_answer", "<think>a</think> so <answer>7</answer>"),
    ("think_answer", "Well. <think>a</think><answer>7</answer>"),
    ("think_answer", "<think>a <answer>7</answer></think>"),
    ("think_answer", "<think>a <answer>7</answer></think><answer>7</answer>"),
    ("think_answer", "<think>a</think><answer><think>7</think></answer>"),
    ("think_answer", "<answer>7</answer><think>a</think>"),
    ("think_answer", "<think>a</thinking><answer>7</answer>"),
    ("think_answer", "a</think><answer>7</answer>"),
    ("think_answer", "<think>a</think><answer>7"),
    ("think_boxed", "<think>\\boxed{7}</think>"),
    ("think_boxed", "\\boxed{7}"),
    ("think_boxed", "<think>a</think>\\boxed{7} \\boxed{7}"),
    ("think_####", "<think>a</think>#### 7\nmore"),
]


@pytest.mark.parametrize(("marker", "text"), THINK_RIGHT)
def test_a_think_template_scores(marker: str, text: str) -> None:
    assert score(text, marker) == 1.0


@pytest.mark.parametrize(("marker", "text"), THINK_WRONG)
def test_a_think_template_cannot_be_faked(marker: str, text: str) -> None:
    assert score(text, marker) == 0.0


def test_tags_in_the_prompt_do_not_count_but_one_left_open_there_does() -> None:
    shown = "Answer as <think>...</think><answer>...</answer>."
    assert answer_format(Sample("7", prompt=shown), marker="think_answer").score == 0.0
    whole = "<think>3+4</think><answer>7</answer>"
    assert answer_format(Sample(whole, prompt=shown), marker="think_answer").score == 1.0
    rest = "3+4</think><answer>7</answer>"
    assert answer_format(Sample(rest, prompt="3+4?\n<think>\n"), marker="think_answer").score == 1.0
    assert answer_format(Sample(whole, prompt="3+4?\n<think>\n"), marker="think_answer").score == 0.0
    turns = ({"role": "user", "content": "3+4?"}, {"role": "assistant", "content": "<think>\n"})
    assert answer_format(Sample(rest, prompt=turns), marker="think_answer").score == 1.0
    assert answer_format(Sample(rest, prompt=turns[:1]), marker="think_answer").score == 0.0
