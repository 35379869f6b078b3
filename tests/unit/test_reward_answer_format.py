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
