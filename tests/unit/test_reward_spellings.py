"""Every way of spelling an answer is judged rightly: no right one refused, no wrong one accepted, in every locale."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.records import Status
from rlvr.rewards import Sample
from rlvr.rewards.audit import RIGHT_KINDS, WRONG_KINDS, right_spellings, wrong_spellings
from rlvr.rewards.locale import COUNTRIES, locale_of
from rlvr.rewards.math_answer import math_answer
from rlvr.rewards.numeric_answer import numeric_answer

GSM8K = Path(__file__).resolve().parents[3] / "shared" / "data" / "gsm8k" / "test.jsonl"


def mistakes(reference: str, locale: str, judge=numeric_answer) -> list[tuple[str, str, str]]:
    found = []
    for want, spellings in ((1.0, right_spellings), (0.0, wrong_spellings)):
        for kind, completion in spellings(reference, locale):
            verdict = judge(Sample(completion, reference), locale=locale)
            if verdict.score != want:
                found.append((kind, completion, verdict.parts[""].evidence))
    return found


def test_there_are_many_kinds_and_no_two_of_a_name() -> None:
    assert len(set(RIGHT_KINDS)) == len(RIGHT_KINDS) >= 60
    assert len(set(WRONG_KINDS)) == len(WRONG_KINDS) >= 60
    used = {kind for ref in ("1234", "-7", "2.5", "5 km") for kind, _ in right_spellings(ref)}
    assert used == set(RIGHT_KINDS)
    used = {kind for ref in ("1234", "-7", "123456", "5 km") for kind, _ in wrong_spellings(ref)}
    assert used == set(WRONG_KINDS)


def test_completions_of_one_answer_are_all_different() -> None:
    texts = [text for spellings in (right_spellings, wrong_spellings) for _, text in spellings("1234")]
    assert len(set(texts)) == len(texts)


@pytest.mark.skipif(not GSM8K.is_file(), reason=f"no {GSM8K}")
def test_no_spelling_of_a_gsm8k_answer_is_misjudged() -> None:
    references = [json.loads(line)["answer"].rpartition("####")[2].strip() for line in GSM8K.open(encoding="utf-8")]
    assert len(references) == 1319
    for reference in sorted(set(references)):
        assert mistakes(reference, "en") == []


@pytest.mark.parametrize("judge", [numeric_answer, math_answer], ids=["numeric_answer", "math_answer"])
@pytest.mark.parametrize("locale", [*COUNTRIES, "en", "es"])
def test_no_spelling_is_misjudged_in_any_country(locale: str, judge) -> None:
    where = locale_of(locale)
    for reference in ("72", "1234", "-7", "2.5", "0", "123456", "98765.25", "-1000000"):
        assert mistakes(where.written(reference), locale, judge) == []


@given(st.integers(-(10**9), 10**9), st.integers(0, 4), st.sampled_from(["en", "ES", "CR", "es-MX"]))
def test_no_spelling_of_any_number_is_misjudged(digits: int, places: int, locale: str) -> None:
    text = str(abs(digits)).rjust(places + 1, "0")
    english = f"{text[:-places]}.{text[-places:]}" if places else text
    reference = locale_of(locale).written(f"-{english}" if digits < 0 else english)
    assert mistakes(reference, locale) == []


@pytest.mark.parametrize("reference", ["2\\sqrt{3}", "(1, 2)", "\\{1, 2\\}", "x^2+1", "\\pi", "x < 3"])
def test_answers_that_are_no_numbers_are_stated_in_the_same_ways(reference: str) -> None:
    for want, spellings in ((1.0, right_spellings), (0.0, wrong_spellings)):
        for kind, completion in spellings(reference):
            assert math_answer(Sample(completion, reference)).score == want, (kind, completion)


#: Found by trying to break the verifiers, after the kinds of `spellings`.
FRESH_RIGHT = [
    ("The answer is: $1,234.50 .", "1234.5"),
    ("### Final Answer\n72", "72"),
    ("**Answer: 72**", "72"),
    ("<answer>\n\n72\n\n</answer>\n", "72"),
    ("The answer is 72 (seventy-two).", "72"),
    ("The answer is 72 clips, which is 48 + 24.", "72"),
    ("\\boxed{\\$1{,}234}", "1234"),
    ("\\boxed{1\\ 234}", "1234"),
    ("\\boxed{72\\,\\text{cm}^2}", "72"),
    ("$$\\boxed{72}$$\n\nDone.", "72"),
    ("The answer is 72 dollars.", "72"),
    ("\\boxed{\\mathbf{72}}", "72"),
    ("\\boxed{\\displaystyle 72}", "72"),
    ("\\boxed{\\text{Answer: }72}", "72"),
    ("The answer is _72_.", "72"),
    ("#### = 72", "72"),
    ("The answer, then, is 72.", "72"),
    ("#### 0.720e2", "72"),
    ("#### US$ 72", "72"),
    ("#### 72 $", "72"),
    ("\\[\\boxed{\n72\n}\\]", "72"),
    ("\\boxed {72}", "72"),
    ("The answer is seventy-two, i.e. \\boxed{72}.", "72"),
    ("La respuesta correcta es: **72**.", "72"),
    ("Respuesta final: 72 euros.", "72"),
]
FRESH_WRONG = [
    "\\boxed{72}{73}",
    "\\boxed{72}3",
    "\\boxed{72}^2",
    "\\boxed{72\\\\73}",
    "#### 72 is wrong",
    "The answer is 72 more than a hundred.",
    "#### 72 below zero",
    "#### 72 degrees below zero",
    "#### 72 negative",
    "\\boxed{\\frac{72}{}}",
    "<answer>72</answer> <answer>73",
    "\\boxed{72} \\boxed{73",
    "#### 72\u200b3",
    "#### 7\u200b2",
    "#### 72\\quad 73",
    "#### 72\n\n#### Alternatively: 73\n#### 73",
    "#### 72...100",
    "#### $72-$73",
    "\\boxed{72_{8}}",
    "\\boxed{71<72<73}",
    "#### 72 mod 100",
    "#### 72 in base 8",
    "#### 72 if x > 0 else 73",
    "#### 72 unless it is 73",
    "#### 73 (= 72 + 1)",
    "#### 7e1+2",
    "The answer is 72 minus one.",
    "#### minus 72",
    "#### 72_000",
    "#### 72'000",
    "\\boxed{0.\\overline{72}}",
    "\\boxed{72i}",
    "\\boxed{72 \\pmod{100}}",
    "The answer is one of 71, 72, 73",
    "#### 72% more",
    "#### half of 72",
]


@pytest.mark.parametrize("judge", [numeric_answer, math_answer], ids=["numeric_answer", "math_answer"])
@pytest.mark.parametrize(("completion", "reference"), FRESH_RIGHT)
def test_fresh_spellings_are_right(completion: str, reference: str, judge) -> None:
    verdict = judge(Sample(completion, reference))
    assert (verdict.score, verdict.status) == (1.0, Status.OK), verdict.parts[""].evidence


@pytest.mark.parametrize("judge", [numeric_answer, math_answer], ids=["numeric_answer", "math_answer"])
@pytest.mark.parametrize("completion", FRESH_WRONG)
def test_fresh_cheats_earn_nothing(completion: str, judge) -> None:
    verdict = judge(Sample(completion, "72"))
    assert verdict.score == 0.0, verdict.parts[""].evidence
