r"""`answer_format`: does the completion have the required form? Says nothing about whether the answer is right.

The form: the marker occurs exactly once after any think block, an answer follows it, and nothing follows the line
that the answer stands on (closing delimiters of displayed mathematics apart). A truncated completion has not come
to its end, so it does not have the form.
"""

from __future__ import annotations

import re
from itertools import islice

from rlvr.records import Status, Verdict
from rlvr.rewards.extract import HASHES, PHRASE, Candidate, final_region, statements
from rlvr.rewards.judgement import verdict
from rlvr.rewards.registry import reward
from rlvr.rewards.sample import Sample

#: Option value -> (name of the marker in `extract`, how its beginning is recognised, so that it can be counted).
_FORMS = {
    "####": ("####", HASHES),
    "boxed": ("boxed", re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])")),
    "answer_is": ("phrase", PHRASE),
    "answer_tag": ("tag", re.compile(r"</?answer>", re.IGNORECASE)),
}
_CLOSING = re.compile(r"(?:\s|\$|\\\]|\\\)|</s>)*")


def check_options(marker: str = "####") -> None:
    """Raises ValueError when `marker` is none of ours."""
    if marker not in _FORMS:
        raise ValueError(f"marker must be one of {', '.join(_FORMS)}, not {marker!r}")


@reward("answer_format", version="1", check=check_options)
def answer_format(sample: Sample, *, marker: str = "####") -> Verdict:
    r"""1 if the completion has the required form, else 0.

    marker: "####" (#### 72), "boxed" (\boxed{72}), "answer_is" (the answer is 72, Answer: 72), or
    "answer_tag" (<answer>72</answer>).
    """
    if sample.truncated:
        return verdict(0.0, Status.TRUNCATED, "cut by the length limit")
    problem = _problem(sample.completion, marker)
    return verdict(0.0, Status.WRONG, problem) if problem else verdict(1.0, Status.OK, f"one {marker}, at the end")


def _problem(text: str, marker: str) -> str:
    begin = final_region(text)
    if begin is None:
        return "the think block is never closed"
    name, sign = _FORMS[marker]
    expected = 2 if marker == "answer_tag" else 1
    count = sum(1 for _ in islice(sign.finditer(text, begin), expected + 1))
    if count == 0:
        return f"no {marker}"
    if count > expected:
        return f"more than one {marker}"
    stated: Candidate | None = next(statements(text, name, begin), None)
    if stated is None or not any(character.isalnum() for character in stated.text):
        return f"no answer with the {marker}"
    line_end = text.find("\n", stated.end)
    if line_end >= 0 and _CLOSING.fullmatch(text, line_end) is None:
        return "text after the line of the answer"
    return ""
