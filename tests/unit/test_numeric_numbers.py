"""Written numbers are read exactly, and what is not one number is refused, whatever it costs the writer."""

from __future__ import annotations

import sys
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rlvr.rewards.numbers import MAX_DIGITS, NotANumber, equal, last_number, parse_number

READ = [
    ("72", "72"),
    ("007", "7"),
    ("+7", "7"),
    ("-5", "-5"),
    ("\u22125", "-5"),
    ("\u20135", "-5"),
    ("- 5", "-5"),
    ("(5)", "5"),
    ("(-5)", "-5"),
    ("72.", "72"),
    ("72.0", "72"),
    (".75", "3/4"),
    ("-.5", "-1/2"),
    ("1.200", "6/5"),
    ("3.14159", "314159/100000"),
    ("1,234", "1234"),
    ("1,234,567.89", "123456789/100"),
    ("1{,}234", "1234"),
    ("1\\,234\\,567", "1234567"),
    ("1\u202f234", "1234"),
    ("$72", "72"),
    ("\\$72", "72"),
    ("$72$", "72"),
    ("$\\$1{,}200$", "1200"),
    ("$$72$$", "72"),
    ("\\(72\\)", "72"),
    ("\\[72\\]", "72"),
    ("-$5", "-5"),
    ("$-5", "-5"),
    ("R$ 5", "5"),
    ("US$5", "5"),
    ("€5", "5"),
    ("5 €", "5"),
    ("£5.50", "11/2"),
    ("5 USD", "5"),
    ("Rs. 500", "500"),
    ("$5k", "5000"),
    ("$1.5M", "1500000"),
    ("50%", "1/2"),
    ("50\\%", "1/2"),
    ("50 percent", "1/2"),
    ("12.5 per cent", "1/8"),
    ("1e3", "1000"),
    ("1.2e-4", "3/25000"),
    ("3 x 10^4", "30000"),
    ("3 \\times 10^{4}", "30000"),
    ("3\u00b710\u2074", "30000"),
    ("2.5 \\cdot 10^{-3}", "1/400"),
    ("10^3", "1000"),
    ("3/4", "3/4"),
    ("-3/4", "-3/4"),
    ("48/2", "24"),
    ("\\frac{3}{4}", "3/4"),
    ("\\dfrac{3}{4}", "3/4"),
    ("\\frac12", "1/2"),
    ("\\frac{-1}{2}", "-1/2"),
    ("-\\tfrac{1}{2}", "-1/2"),
    ("1 1/2", "3/2"),
    ("-1 1/2", "-3/2"),
    ("1\\frac{1}{2}", "3/2"),
    ("½", "1/2"),
    ("1½", "3/2"),
    ("2 ¾", "11/4"),
    ("1\u20442", "1/2"),
    ("x=5", "5"),
    ("x = 5 cm", "5"),
    ("x_{1} = 5", "5"),
    ("Total cost = $72", "72"),
    ("Total: 72", "72"),
    ("= 72", "72"),
    ("1/2 = 0.5", "1/2"),
    ("\\approx 7", "7"),
    ("approximately 7", "7"),
    ("x \\approx 7", "7"),
    ("**72**", "72"),
    ("`72`", "72"),
    ("{72}", "72"),
    ("\\textbf{72}", "72"),
    ("\\boxed{\\boxed{12}}", "12"),
    ("72 clips", "72"),
    ("72 clips altogether in April and May", "72"),
    ("$18.00 per day", "18"),
    ("72 in total", "72"),
    ("5 times a week", "5"),
    ("45^\\circ", "45"),
    ("45°", "45"),
    ("20\\text{ cm}", "20"),
    ("5 m^2", "5"),
    ("3 million", "3000000"),
    ("1.5 thousand dollars", "1500"),
    ("5 dozen eggs", "60"),
    ("60 miles per hour", "60"),
]

REFUSED = [
    "",
    "?",
    "nan",
    "inf",
    "seven",
    "\\text{seven}",
    "7 or 8",
    "7 or eight",
    "7 and a half",
    "7, 8",
    "1,2",
    "12,34",
    "1,2345",
    "0,123",
    "1,234,56",
    "1.234,56",
    "1 234",
    "1.2.3",
    "8=7",
    "3+5=8",
    "3+5=7",
    "x=7 \\text{ or } x=8",
    "f(x) = 0",
    "7 = x = 8",
    "[0,10]",
    "(1,2)",
    "\\{5\\}",
    "{1, 2}",
    "1:2",
    "10:30",
    "<7",
    "x < 7",
    "\\ge 7",
    "±7",
    "\\pm 7",
    "--5",
    "-$-5",
    "1/0",
    "\\frac{1}{0}",
    "1 -1/2",
    "\\frac123",
    "\\frac{1}{2}3",
    "10^{4}5",
    "5x",
    "5 x",
    "5k",
    "2pi",
    "2\\pi",
    "2\\sqrt{2}",
    "5 squared",
    "3 fifths",
    "5 square root",
    "5!",
    "5?",
    "3rd",
    "5 + x",
    "5 - 3",
    "2^10",
    "5 feet 3 inches",
    "at least 7",
    "nearly 7",
    "\\mathbb{R}",
    "\uff11\uff12",
    "\u0661\u0662",
]


@pytest.mark.parametrize(("written", "value"), READ)
def test_a_written_number_is_read_exactly(written: str, value: str) -> None:
    assert parse_number(written).value == Fraction(value)


@pytest.mark.parametrize("written", REFUSED)
def test_what_is_not_one_number_is_refused(written: str) -> None:
    with pytest.raises(NotANumber):
        parse_number(written)


@pytest.mark.parametrize(
    "written",
    [
        "9" * 10**6,
        "9" * (MAX_DIGITS + 1),
        "9e999999999",
        "1e-999999999",
        "10^{999999}",
        "3 x 10^" + "9" * 500,
        "9^{9^{9^9}}",
        "{" * 900,
        "\\text{" * 150,
        "\\frac{1}{" * 100,
        "1" + " " * 990 + "2",
        "-" + " " * 990 + "x",
        "1," * 490,
        "a" * 999,
        "5 " + "a" * 990 + "!",
    ],
    ids=lambda written: written[:12],
)
def test_hostile_input_is_refused_before_any_arithmetic(written: str) -> None:
    with pytest.raises(NotANumber):
        parse_number(written)


def test_the_largest_numbers_fit_pythons_strictest_digit_limit() -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        for written in ("9" * 300 + "e300", "0." + "1" * 299 + "e-300", f"{'9' * 300} {'9' * 300}/{'7' * 300}%"):
            assert str(parse_number(written))
    finally:
        sys.set_int_max_str_digits(before)


@pytest.mark.parametrize("digits", ["\uff11\uff12\uff10\uff10", "\u0661\u0662\u0660\u0660"])
def test_digits_of_other_scripts_are_an_option(digits: str) -> None:
    assert parse_number(digits, unicode_digits=True).value == 1200


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("5 km", "5 kilometers", True),
        ("5 km", "5 m", False),
        ("5 km", "5", True),
        ("5 km", "5000 m", False),
        ("5 m", "5 m^2", False),
        ("5 square meters", "5 m²", True),
        ("60 mph", "60 miles per hour", True),
        ("60 km/h", "60 miles/h", False),
        ("$5", "5 dollars", True),
        ("$5", "5 euros", False),
        ("5 apples", "5 oranges", True),
        ("50%", "0.5", True),
        ("50%", "50", True),
        ("50", "50%", True),
        ("0.5%", "0.5", False),
        ("50%", "5", False),
        ("1/3", "0.33", False),
        ("123456789012345678901", "123456789012345678902", False),
    ],
)
def test_equality_is_exact_and_respects_units(one: str, other: str, same: bool) -> None:
    assert equal(parse_number(one), parse_number(other)) is same


def test_percent_as_a_fraction_only_is_an_option() -> None:
    fifty = parse_number("50%")
    assert not equal(fifty, parse_number("50"), percent="fraction")
    assert equal(fifty, parse_number("0.5"), percent="fraction")


def test_units_can_be_left_out_of_the_comparison() -> None:
    assert equal(parse_number("5 km"), parse_number("5 m"), compare_units=False)


_INTEGERS = st.integers(min_value=-(10**30), max_value=10**30)
_FORMS = [
    "{}",
    "{:,}",
    "${:,}",
    "\\${}",
    "{}.00",
    "{} apples",
    "**{}**",
    "\\text{{{}}}",
    "x = {}",
    "{:,}.",
    "{}e0",
    "({})",
    "{} \\times 10^{{0}}",
    "{}/1",
    "\\left({}\\right)",
    "{}\\text{{ km}}",
]


@given(_INTEGERS, st.sampled_from(_FORMS))
@example(1000, "({})")
def test_an_integer_reads_the_same_in_every_form(value: int, form: str) -> None:
    assert parse_number(form.format(value)).value == value


@given(st.integers(-(10**12), 10**12), st.integers(0, 12), st.booleans())
def test_a_decimal_is_its_digits_over_a_power_of_ten(digits: int, places: int, grouped: bool) -> None:
    sign, text = ("-" if digits < 0 else ""), str(abs(digits)).rjust(places + 1, "0")
    whole, fraction = (text[:-places], text[-places:]) if places else (text, "")
    whole = f"{int(whole):,}" if grouped else whole
    written = f"{sign}{whole}.{fraction}" if fraction else f"{sign}{whole}"
    assert parse_number(written).value == Fraction(digits, 10**places)


@given(st.integers(-(10**9), 10**9), st.integers(1, 10**9), st.sampled_from(["{}/{}", "\\frac{{{}}}{{{}}}", "{} / {}"]))
def test_a_fraction_is_exact(top: int, bottom: int, form: str) -> None:
    assert parse_number(form.format(top, bottom)).value == Fraction(top, bottom)


@given(st.integers(1, 10**6), st.integers(1, 99), st.integers(1, 99))
def test_a_mixed_number_is_the_sum_of_its_parts(whole: int, top: int, bottom: int) -> None:
    value = whole + Fraction(top, bottom)
    assert parse_number(f"{whole} {top}/{bottom}").value == value
    assert parse_number(f"-{whole}\\frac{{{top}}}{{{bottom}}}").value == -value


@given(st.fractions(max_denominator=10**6))
def test_the_normalised_form_of_a_number_reads_as_itself(value: Fraction) -> None:
    number = parse_number(f"{value.numerator}/{value.denominator}")
    assert parse_number(str(number)) == number


@given(_INTEGERS, st.sampled_from([1, -1, 2, 10]))
def test_different_numbers_are_never_equal(value: int, difference: int) -> None:
    for form in ("{}", "{:,}", "${}"):
        assert not equal(parse_number(form.format(value)), parse_number(str(value + difference)))


@given(st.text(max_size=200) | st.text(alphabet="0123456789.,/-+ ()[]{}\\$%^xe=frac½", max_size=200))
def test_any_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    try:
        number = parse_number(text)
    except NotANumber as refusal:
        assert str(refusal)
    else:
        assert isinstance(number.value, Fraction)
    last_number(text)


@given(_INTEGERS, _INTEGERS)
def test_two_numbers_are_never_read_as_one(one: int, other: int) -> None:
    for joined in (f"{one} or {other}", f"{one} and {other}", f"{one}; {other}", f"{one} to {other}"):
        with pytest.raises(NotANumber):
            parse_number(joined)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("I have 7 apples", "7"),
        ("3 + 4 = 7.", "7"),
        ("so she pays $1,234.50 in total.", "2469/2"),
        ("the change is -5", "-5"),
        ("the change is -$5.", "-5"),
        ("10 - 5", "5"),
        ("10 -5", "5"),
        ("10-5", "5"),
        ("(7) - 5", "5"),
        ("Apples:\n- 5", "5"),
        ("it is 3/4", "3/4"),
        ("it is \\frac{3}{4} of it", "3/4"),
        ("it is 1 1/2 hours", "3/2"),
        ("it is 2½ hours", "5/2"),
        ("it is 50%", "1/2"),
        ("it is 3 million", "3000000"),
        ("it is 3 x 10^4", "30000"),
        ("1, 2, 3", "3"),
        ("1,2", "2"),
        ("the area is 5 m²", "5"),
        ("the area is 5 cm^{2}", "5"),
        ("5 apples on the 23rd", "5"),
        ("x_1 is 5", "5"),
        ("答案是72。", "72"),
        ("\\boxed{72}", "72"),
        ("#### 72\n", "72"),
        ("9" * 5000 + " then 7", "7"),
        ("7 " + "and then some words " * 500, "7"),
    ],
)
def test_the_last_number_of_running_text(text: str, value: str) -> None:
    found = last_number(text)
    assert found is not None
    assert found[1].value == Fraction(value)


@pytest.mark.parametrize("text", ["", "no number", "x1", "9" * 10**6])
def test_text_without_a_readable_number_has_no_last_number(text: str) -> None:
    assert last_number(text) is None
