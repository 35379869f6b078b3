"""How numbers are written, country by country: `1,234.56` in Mexico and the United States, `1.234,56` in Spain.

There is no "Latin American" way of writing numbers, so a locale must name a country (ES, es-MX, pt-BR), or be "en",
English notation, or "es", that of Spain. "auto" lets the reference decide what cannot be told from the answer.
Source: Unicode CLDR, decimal and group of each country's locale. Must not know what a verifier does with a number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rlvr.rewards.notation import GROUP


@dataclass(frozen=True, slots=True)
class Locale:
    """How numbers are written, and in which language the words beside them are."""

    decimal: str
    group: str
    language: str

    def to_english(self, text: str) -> str:
        """`text` with the decimal signs and separators of numbers as in 1,234.56. Others are left as they are."""
        if self.decimal == ",":
            if self.group == " ":
                # A point says nothing certain here, so it becomes a sign that stands in no number.
                text = _POINT.sub(_NO_SIGN, _GROUPING_SPACE.sub(GROUP, text))
                text = _COMMA.sub(".", text)
            else:
                text = _SEPARATOR.sub(lambda match: "." if match[0] == "," else ",", text)
        return text.replace(GROUP, ",") if GROUP in text else text

    def written(self, text: str) -> str:
        """The opposite: a number in English notation as this locale writes it."""
        return text.translate({ord(","): self.group, ord("."): self.decimal})


_SEPARATOR = re.compile(r"(?<![A-Za-z])[.,](?=[0-9])")
_COMMA = re.compile(r"(?<![A-Za-z]),(?=[0-9])")
_POINT = re.compile(r"(?<![A-Za-z])\.(?=[0-9])")
_GROUPING_SPACE = re.compile(r"(?<=[0-9]) (?=[0-9]{3}(?![0-9]|\s*/))")  # 1 234/500 is a mixed number
_NO_SIGN = "\ue002"

_POINT_COUNTRIES = "MX PE GT HN SV NI PA DO CU PR US"
_COMMA_COUNTRIES = "ES AR CO CL VE EC BO PY UY BR"
_LANGUAGES = {"US": "en", "BR": "pt"}

#: Country -> how it writes numbers.
COUNTRIES: dict[str, Locale] = {
    **{country: Locale(".", ",", _LANGUAGES.get(country, "es")) for country in _POINT_COUNTRIES.split()},
    **{country: Locale(",", ".", _LANGUAGES.get(country, "es")) for country in _COMMA_COUNTRIES.split()},
    "CR": Locale(",", " ", "es"),
}
ENGLISH = COUNTRIES["US"]
AUTO = "auto"
_NAME = re.compile(r"(?:([a-z]{2})[-_])?([A-Z]{2})")


def locale_of(name: str) -> Locale:
    """The locale called `name`: a country ("MX"), language and country ("es-MX", "en-US"), "en" or "es".

    Raises ValueError. "auto" is none: whoever allows it must ask for it first.
    """
    if not isinstance(name, str):
        raise ValueError(f"locale must be text such as es-MX, not {name!r}; quote it in YAML")
    if name in ("en", "es"):
        return ENGLISH if name == "en" else COUNTRIES["ES"]
    match = _NAME.fullmatch(name)
    if match is None or match[2] not in COUNTRIES:
        region = " A region is no country: its countries write numbers differently." if name.endswith("419") else ""
        raise ValueError(
            f"locale must be en, es, or one of the countries {', '.join(COUNTRIES)}, not {name!r}.{region}"
        )
    locale = COUNTRIES[match[2]]
    return Locale(locale.decimal, locale.group, match[1]) if match[1] else locale
