r"""`answer_format`: does the completion have the required form? Says nothing about whether the answer is right.

One grammar for each template, which the whole completion must match:

    [thinking] text, then the marker once with an answer, and nothing after the line that the answer stands on
    <think> not empty </think>, then that                          think_####, think_boxed, think_answer_is
    <think> not empty </think> <answer> not empty </answer>        think_answer: nothing before, between or after

Closing delimiters of displayed mathematics may follow the answer. Tags are counted in the completion only, so the
prompt may show them; where it ends with an open <think>, that one is the completion's. A truncated completion has
not come to its end, so it does not have the form.
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
_THINK = "think_"
MARKERS = (*_FORMS, *(f"{_THINK}{form}" for form in _FORMS if form != "answer_tag"), "think_answer")
_THINK_TAG = re.compile(r"<(/?)(think|thinking)>", re.IGNORECASE)
_OPEN_THINK = re.compile(r"<think(?:ing)?>\s*\Z", re.IGNORECASE)
_CLOSING = re.compile(r"(?:\s|\$|\\\]|\\\)|</s>)*")
#: A block or an answer says something.
_SAYS = re.compile(r"[^\W_]")


def check_options(marker: str = "####") -> None:
    """Raises ValueError when `marker` is none of ours."""
    if marker not in MARKERS:
        raise ValueError(f"marker must be one of {', '.join(MARKERS)}, not {marker!r}")


@reward("answer_format", version="2", check=check_options)
def answer_format(sample: Sample, *, marker: str = "####") -> Verdict:
    r"""1 if the completion has the required form, else 0.

    marker: "####" (#### 72), "boxed" (\boxed{72}), "answer_is" (the answer is 72, Answer: 72, la respuesta es 72) or
    "answer_tag" (<answer>72</answer>); with "think_" before it (think_boxed), after one think block that says
    something; "think_answer": one think block and one answer tag, and nothing else.
    """
    if sample.truncated:
        return verdict(0.0, Status.TRUNCATED, "cut by the length limit")
    problem = _problem(sample, marker)
    return verdict(0.0, Status.WRONG, problem) if problem else verdict(1.0, Status.OK, f"{marker}: the whole form")


def _problem(sample: Sample, marker: str) -> str:
    text = sample.completion
    if not marker.startswith(_THINK):
        begin = final_region(text)
        return "the think block is never closed" if begin is None else _answer_problem(text, begin, marker)
    tags = list(islice(_THINK_TAG.finditer(text), 3))
    opened = _opened_by_prompt(sample)
    expected = [True] if opened else [False, True]  # closing?
    if [bool(tag[1]) for tag in tags] != expected:
        return "not exactly one think block"
    start = 0 if opened else tags[0].end()
    if not opened and (text[: tags[0].start()].strip() or tags[0][2].lower() != tags[1][2].lower()):
        return "the completion does not begin with its think block"
    if not _SAYS.search(text, start, tags[-1].start()):
        return "the think block is empty"
    if marker != "think_answer":
        return _answer_problem(text, tags[-1].end(), marker.removeprefix(_THINK))
    problem = _answer_problem(text, tags[-1].end(), "answer_tag")
    if problem:
        return problem
    first = _FORMS["answer_tag"][1].search(text)
    if first is None or first.start() < tags[-1].end() or text[tags[-1].end() : first.start()].strip():
        return "text between the think block and the answer"
    return "" if text.rstrip().lower().endswith("</answer>") else "text after the answer"


def _opened_by_prompt(sample: Sample) -> bool:
    """Whether the prompt ends with an open think block, as some chat templates have it."""
    if isinstance(sample.prompt, str):
        return _OPEN_THINK.search(sample.prompt) is not None
    last = sample.prompt[-1] if sample.prompt else {}
    return last.get("role") == "assistant" and _OPEN_THINK.search(last.get("content", "")) is not None


def _answer_problem(text: str, begin: int, form: str) -> str:
    name, sign = _FORMS[form]
    expected = 2 if form == "answer_tag" else 1
    count = sum(1 for _ in islice(sign.finditer(text, begin), expected + 1))
    if count == 0:
        return f"no {form}"
    if count > expected:
        return f"more than one {form}"
    stated: Candidate | None = next(statements(text, name, begin), None)
    if stated is None or _SAYS.search(stated.text) is None:
        return f"no answer with the {form}"
    line_end = text.find("\n", stated.end)
    if line_end >= 0 and _CLOSING.fullmatch(text, line_end) is None:
        return "text after the line of the answer"
    return ""
