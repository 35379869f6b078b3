"""Numbers are read as the country writes them, and what could be read in two ways is not guessed."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.records import Prompt, Status
from rlvr.rewards import Sample
from rlvr.rewards.locale import COUNTRIES, locale_of
from rlvr.rewards.number_words import words_to_int
from rlvr.rewards.numbers import NotANumber, parse_number
from rlvr.rewards.numeric_answer import numeric_answer
from rlvr.rewards.wire import sample_from_plain, sample_to_plain

COMMA = ["ES", "AR", "CO", "CL", "VE", "EC", "BO", "PY", "UY", "BR"]
POINT = ["MX", "PE", "GT", "HN", "SV", "NI", "PA", "DO", "CU", "PR", "US"]


def value(text: str, country: str) -> Fraction:
    return parse_number(text, locale=locale_of(country)).value


def test_every_country_is_known() -> None:
    assert {*COMMA, *POINT, "CR"} == set(COUNTRIES)


@pytest.mark.parametrize("country", COMMA)
def test_a_comma_is_the_decimal_sign(country: str) -> None:
    assert value("1.234,56", country) == Fraction("1234.56")
    assert value("1.200", country) == 1200
    assert value("3,5", country) == Fraction("3.5")
    assert value("-1.234.567", country) == -1234567
    assert value("$ 1.200,50", country) == Fraction("1200.5")
    assert value("3{,}5", country) == Fraction("3.5")
    assert value("1\u202f234,5", country) == Fraction("1234.5")
    for refused in ("1,234.56", "3.5", "1.23", "0.123", "1.2345", "1,2,3"):
        with pytest.raises(NotANumber):
            value(refused, country)


@pytest.mark.parametrize("country", POINT)
def test_a_point_is_the_decimal_sign(country: str) -> None:
    assert value("1,234.56", country) == Fraction("1234.56")
    assert value("1.200", country) == Fraction("1.2")
    assert value("1,200", country) == 1200
    for refused in ("1.234,56", "3,5", "1.234.567"):
        with pytest.raises(NotANumber):
            value(refused, country)


def test_costa_rica_groups_with_spaces_and_a_point_says_nothing() -> None:
    assert value("1 234,56", "CR") == Fraction("1234.56")
    assert value("1\u00a0234\u00a0567", "CR") == 1234567
    assert value("3,5", "CR") == Fraction("3.5")
    assert value("1 1/2", "CR") == Fraction(3, 2)
    for refused in ("1.200", "1.5", "1,234.5"):
        with pytest.raises(NotANumber):
            value(refused, "CR")


@pytest.mark.parametrize(
    ("name", "decimal"), [("en", "."), ("es", ","), ("es-MX", "."), ("es_AR", ","), ("pt-BR", ",")]
)
def test_a_locale_is_named_by_its_country(name: str, decimal: str) -> None:
    assert locale_of(name).decimal == decimal


@pytest.mark.parametrize("name", ["es-419", "latam", "EU", "", "en-XX", "mx", "es-mx"])
def test_a_region_is_no_locale(name: str) -> None:
    with pytest.raises(ValueError, match="countries"):
        locale_of(name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5 mil", 5000),
        ("1,5 millones de pesos", 1500000),
        ("2 mil millones", 2 * 10**9),
        ("3 docenas de huevos", 36),
        ("72 manzanas en total", 72),
        ("50 por ciento", Fraction(1, 2)),
        ("aproximadamente 7", 7),
        ("5 veces a la semana", 5),
        ("20 km por hora", 20),
    ],
)
def test_spanish_words_beside_a_number(text: str, expected: Fraction) -> None:
    assert value(text, "ES") == expected


@pytest.mark.parametrize(
    "text",
    ["7 o 8", "7 u ocho", "7 y medio", "7 o más", "7 más dos", "3 quintos", "7 al cuadrado", "7 quizás", "7 bajo cero"],
)
def test_spanish_hedges_are_no_numbers(text: str) -> None:
    with pytest.raises(NotANumber):
        value(text, "ES")


def test_spanish_units_are_compared() -> None:
    def score(answer: str, reference: str) -> float | None:
        return numeric_answer(Sample(f"#### {answer}", reference), locale="ES").score

    assert score("5 kilómetros", "5 km") == 1.0
    assert score("5 metros", "5 km") == 0.0
    assert score("5 pesos", "$5") == 1.0


@pytest.mark.parametrize(
    ("answer", "reference", "score"),
    [
        ("1.200", "1.200,50", 0.0),  # the reference is Spanish, so this is 1200
        ("1.200,50", "1,200.50", 1.0),  # either reads in one way only
        ("1.200", "1.2", 1.0),  # the reference can only be English
        ("1.200", "3,5", 0.0),
        ("1.200", "1200", 0.0),  # the reference does not say: refused
        ("1,200", "1200", 0.0),
        ("1200", "1200", 1.0),
        ("3,5", "3.5", 1.0),
        ("1.234.567", "1234567", 1.0),
    ],
)
def test_where_the_locale_is_open_the_reference_decides_or_the_answer_is_refused(
    answer: str, reference: str, score: float
) -> None:
    assert numeric_answer(Sample(f"#### {answer}", reference), locale="auto").score == score


def test_a_reference_that_reads_in_two_ways_gives_no_score() -> None:
    verdict = numeric_answer(Sample("#### 1200", "1.200"), locale="auto")
    assert (verdict.score, verdict.status) == (None, Status.BAD_REFERENCE)


def test_a_reference_kept_for_programs_is_read_in_english() -> None:
    assert numeric_answer(Sample("#### 1.234,56", "1234.56"), locale="ES").score == 1.0
    assert numeric_answer(Sample("#### 3,5", "3.5"), locale="ES").score == 1.0
    assert numeric_answer(Sample("#### 3.5", "3.5"), locale="ES").score == 0.0


def test_a_samples_own_locale_goes_first() -> None:
    sample = Sample("#### 1.200", "1200", locale="es-AR")
    assert numeric_answer(sample).score == 1.0
    assert sample_from_plain(sample_to_plain(sample)) == sample
    assert numeric_answer(Sample("#### 1.200", "1200", locale="es-MX")).score == 0.0
    assert numeric_answer(Sample("#### 1200", "1200", locale="es-419")).status is Status.BAD_REFERENCE
    assert Prompt("1", "1200", text="?", extra={"locale": "es-AR"}).extra["locale"] == "es-AR"


@given(st.integers(-(10**12), 10**12), st.integers(0, 9), st.sampled_from(sorted(COUNTRIES)), st.booleans())
def test_what_a_country_writes_it_reads(digits: int, places: int, country: str, grouped: bool) -> None:
    sign, text = ("-" if digits < 0 else ""), str(abs(digits)).rjust(places + 1, "0")
    whole, fraction = (text[:-places], text[-places:]) if places else (text, "")
    english = f"{sign}{int(whole):,}" if grouped else f"{sign}{int(whole)}"
    english += f".{fraction}" if fraction else ""
    assert value(locale_of(country).written(english), country) == Fraction(digits, 10**places)


@given(st.text(alphabet="0123456789., ", min_size=1, max_size=14), st.sampled_from(sorted(COUNTRIES)))
def test_a_number_never_reads_as_two_different_ones_in_one_country(text: str, country: str) -> None:
    where = locale_of(country)
    try:
        number = parse_number(text, locale=where)
    except NotANumber:
        return
    digits = "".join(character for character in text.partition(where.decimal)[0] if character.isdigit())
    assert int(digits or "0") == int(number.value), "the whole part is what stands before the decimal sign"


@pytest.mark.parametrize(
    ("words", "number"),
    [
        ("seven", 7),
        ("twenty-one", 21),
        ("one hundred and five", 105),
        ("two thousand three hundred", 2300),
        ("minus three", -3),
        ("siete", 7),
        ("treinta y dos", 32),
        ("ciento veintiuno", 121),
        ("mil doscientos", 1200),
        ("dos millones", 2000000),
        ("zero", 0),
    ],
)
def test_number_words(words: str, number: int) -> None:
    assert words_to_int(words) == number


@pytest.mark.parametrize(
    "words", ["", "seven eight", "twenty eleven", "hundred", "and", "seven or eight", "seven apples"]
)
def test_other_words_are_no_number(words: str) -> None:
    assert words_to_int(words) is None
