"""Numbers written in words, English and Spanish: "twenty-one", "ciento veintiuno". Only where an option asks for them.

Must not know digits, units or markers.
"""

from __future__ import annotations

import re

_ENGLISH_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_ENGLISH_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_SPANISH_UNITS = (
    "cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciséis diecisiete "
    "dieciocho diecinueve veinte veintiuno veintidós veintitrés veinticuatro veinticinco veintiséis veintisiete "
    "veintiocho veintinueve"
)
_SPANISH_TENS = "treinta cuarenta cincuenta sesenta setenta ochenta noventa"
_SPANISH_HUNDREDS = (
    "ciento doscientos trescientos cuatrocientos quinientos seiscientos setecientos ochocientos novecientos"
)
#: Word -> (value, what it needs, what it leaves). Within a thousand, hundreds leave 3, tens 2, all others 1, and each
#: word needs less than was left before it; 10 to 19 leave no room for units, and zero stands alone.
_SMALL: dict[str, tuple[int, int, int]] = {
    **{word: (value, 2 if value > 9 else 1, 1) for value, word in enumerate(_ENGLISH_UNITS.split())},
    **{word: (20 + 10 * place, 2, 2) for place, word in enumerate(_ENGLISH_TENS.split())},
    **{word: (value, 2 if value > 9 else 1, 1) for value, word in enumerate(_SPANISH_UNITS.split())},
    **{word: (30 + 10 * place, 2, 2) for place, word in enumerate(_SPANISH_TENS.split())},
    **{word: (100 * (place + 1), 3, 3) for place, word in enumerate(_SPANISH_HUNDREDS.split())},
    "un": (1, 1, 1),
    "una": (1, 1, 1),
    "veintiún": (21, 2, 1),
    "cien": (100, 3, 3),
    "zero": (0, 3, 1),
    "cero": (0, 3, 1),
}
_LARGE = {"thousand": 10**3, "million": 10**6, "mil": 10**3, "millón": 10**6, "millones": 10**6}
_SEPARATOR = re.compile(r"[\s-]+")
_MAX_WORDS = 20


def words_to_int(text: str) -> int | None:
    """The whole number that `text` spells in words; None when it is anything else."""
    words = _SEPARATOR.split(text.strip().lower())
    if not 0 < len(words) <= _MAX_WORDS:
        return None
    negative = words[0] in ("minus", "negative", "menos")
    total = group = 0
    rank, scale, counted = 4, 10**9, False
    for place, word in enumerate(words[1:] if negative else words):
        if word in _SMALL and _SMALL[word][1] < rank:
            value, _, rank = _SMALL[word]
            group, counted = group + value, True
        elif word == "hundred" and 0 < group < 10 and rank == 1:
            group, rank = group * 100, 3
        elif word in _LARGE and _LARGE[word] < scale and (counted or word == "mil") and (group or word == "mil"):
            scale = _LARGE[word]
            total, group, rank, counted = total + (group or 1) * scale, 0, 4, True
        elif not (word in ("and", "y") and place and counted):
            return None
    if not counted or words[-1] in ("and", "y"):
        return None
    return -(total + group) if negative else total + group
