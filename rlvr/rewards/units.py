"""Words beside a number: which of them are units, which multiply it, which make it no number at all.

English everywhere, as answers mix it in; Spanish besides where the locale's language is Spanish. Data only. Must not
know how a number is written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SPELLINGS = {
    "$": "$ dollar dollars usd bucks",
    "cent": "cent cents ¢",
    "euro": "euro euros eur €",
    "pound sterling": "gbp £",
    "yen": "yen jpy ¥",
    "rupee": "rupee rupees inr ₹",
    "km": "km kms kilometer kilometers kilometre kilometres",
    "m": "m meter meters metre metres",
    "cm": "cm cms centimeter centimeters centimetre centimetres",
    "mm": "mm millimeter millimeters millimetre millimetres",
    "mile": "mi mile miles",
    "yard": "yd yds yard yards",
    "foot": "ft foot feet",
    "inch": "in inch inches",
    "kg": "kg kgs kilo kilos kilogram kilograms",
    "g": "g gram grams",
    "mg": "mg milligram milligrams",
    "tonne": "ton tons tonne tonnes",
    "pound": "lb lbs pound pounds",
    "ounce": "oz ounce ounces",
    "litre": "l liter liters litre litres",
    "ml": "ml milliliter milliliters millilitre millilitres",
    "gallon": "gal gallon gallons",
    "quart": "qt quart quarts",
    "pint": "pt pint pints",
    "cup": "cup cups",
    "second": "s sec secs second seconds",
    "minute": "min mins minute minutes",
    "hour": "h hr hrs hour hours",
    "day": "day days",
    "week": "week weeks wk wks",
    "month": "month months",
    "year": "yr yrs year years",
    "acre": "acre acres",
    "hectare": "ha hectare hectares",
    "degree": "° deg degs degree degrees",
    "°C": "°c celsius",
    "°F": "°f fahrenheit",
    "calorie": "cal calorie calories",
    "kcal": "kcal kilocalorie kilocalories",
    "watt": "watt watts",
    "kWh": "kwh",
    "mile/hour": "mph",
    "km/hour": "kph kmh",
    "am": "am a.m",
    "pm": "pm p.m",
}

#: Symbols that stand before or after the number without a space.
CURRENCY = {"€": "euro", "£": "pound sterling", "¥": "yen", "₹": "rupee", "¢": "cent"}
CURRENCY_CODES = {"usd": "$", "eur": "euro", "gbp": "pound sterling", "inr": "rupee", "rs": "rupee"}

_SPANISH_SPELLINGS = {
    "$": "dólar dólares dolar dolares peso pesos mxn",  # the sign of either
    "cent": "centavo centavos céntimo céntimos",
    "km": "kilómetro kilómetros kilometro kilometros",
    "m": "metro metros",
    "cm": "centímetro centímetros centimetro centimetros",
    "mm": "milímetro milímetros milimetro milimetros",
    "mile": "milla millas",
    "foot": "pie pies",
    "inch": "pulgada pulgadas",
    "kg": "kilogramo kilogramos",
    "g": "gramo gramos",
    "mg": "miligramo miligramos",
    "tonne": "tonelada toneladas",
    "pound": "libra libras",
    "ounce": "onza onzas",
    "litre": "litro litros",
    "ml": "mililitro mililitros",
    "gallon": "galón galones",
    "cup": "taza tazas",
    "second": "segundo segundos",
    "minute": "minuto minutos",
    "hour": "hora horas",
    "day": "día días dia dias",
    "week": "semana semanas",
    "month": "mes meses",
    "year": "año años",
    "hectare": "hectárea hectáreas",
    "degree": "grado grados",
    "calorie": "caloría calorías",
    "watt": "vatio vatios",
}

_MULTIPLIERS = {
    "hundred": 10**2,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
    "dozen": 12,
}
#: A Spanish billón is a million millions. Plurals are spelled out here, English ones just take an s.
_SPANISH_MULTIPLIERS = {
    "mil": 10**3,
    "millones": 10**6,
    "millón": 10**6,
    "millon": 10**6,
    "billones": 10**12,
    "billón": 10**12,
    "docenas": 12,
    "docena": 12,
    "cientos": 10**2,
}
#: `$5k`: only after a currency, elsewhere k, M and B are units or variables.
CURRENCY_SUFFIXES = {"k": 10**3, "m": 10**6, "mn": 10**6, "b": 10**9, "bn": 10**9}

_NOT_FIRST = (
    "or and to nor plus minus over not choose mod modulo half halves third thirds fourth fourths fifth fifths "
    "sixth sixths seventh sevenths eighth eighths ninth ninths tenth tenths hundredth hundredths thousandth "
    "thousandths point divided multiplied root roots sin cos tan log exp sqrt infinity"
)
_NUMBER_WORDS = (
    "half|third|quarter|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|"
    "sixteen|seventeen|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand"
)
_NEVER = (
    r"maybe|perhaps|possibly|alternatively|otherwise|unless|wrong|incorrect|negative|below\s+zero|factorial|squared|cubed|sqrt|infinity|square\s+roots?|(?:or|and)\s+(?:more|less)"
    rf"|(?:and|or|to|plus|minus|times|over|by|(?:more|less|fewer)\s+than)\s+(?:an?\s+)?(?:{_NUMBER_WORDS})"
)
_SPANISH_NOT_FIRST = (
    "o u y ni más mas menos módulo medio media medios medias tercio tercios cuarto cuartos quinto quintos "
    "sexto sextos séptimos octavo octavos noveno novenos décimo décimos coma punto dividido multiplicado raíz infinito"
)
_SPANISH_NUMBER_WORDS = (
    "medio|media|tercio|cuarto|uno|una|dos|tres|cuatro|cinco|seis|siete|ocho|nueve|diez|once|doce|trece|catorce|quince|"
    "dieciséis|diecisiete|dieciocho|diecinueve|veinte|treinta|cuarenta|cincuenta|sesenta|setenta|ochenta|noventa|cien|mil"
)
_SPANISH_NEVER = (
    r"quizás?|tal\s+vez|acaso|incorrecto|incorrecta|equivocado|equivocada|negativo|bajo\s+cero|a\s+menos\s+que|salvo|posiblemente|a\s+lo\s+mejor|al\s+cuadrado|al\s+cubo|factorial|o\s+más|o\s+menos"
    rf"|(?:y|o|u|a|más|menos|por|entre|sobre)\s+(?:{_SPANISH_NUMBER_WORDS})"
)
#: Words of one or two letters that may follow a number; any other so short is read as a variable.
_SHORT_WORDS = "of in at a an by to on is as it he we i up my so or if"
_SPANISH_SHORT_WORDS = "de en el la al se su un lo le ya es y o u a si no él tú yo me te mi tu da"


@dataclass(frozen=True)
class Words:
    """The words of a language that mean something beside a number."""

    units: dict[str, str]
    """Spelling in lower case -> canonical unit."""
    multipliers: dict[str, int]
    multiplier: re.Pattern[str]
    """A multiplier after a number; group 1 is the word."""
    not_first: frozenset[str]
    """As the first word after a number, these continue the number, or hedge: "7 or eight", "3 fifths"."""
    never: re.Pattern[str]
    """Anywhere after a number, this says that it is not the answer, or not all of it."""
    short: frozenset[str]
    """Words of one or two letters that may follow a number."""


def _words(units: dict[str, str], multipliers: dict[str, int], not_first: str, never: str, short: str) -> Words:
    return Words(
        units={spelling: unit for unit, spellings in units.items() for spelling in spellings.split()},
        multipliers=multipliers,
        multiplier=re.compile(rf"\s*-?\s*({'|'.join(multipliers)})s?\b", re.IGNORECASE),
        not_first=frozenset(not_first.split()),
        never=re.compile(rf"\b(?:{never})\b", re.IGNORECASE),
        short=frozenset(short.split()),
    )


ENGLISH = _words(_SPELLINGS, _MULTIPLIERS, _NOT_FIRST, _NEVER, _SHORT_WORDS)
SPANISH = _words(
    {
        unit: f"{_SPELLINGS.get(unit, '')} {_SPANISH_SPELLINGS.get(unit, '')}"
        for unit in {**_SPELLINGS, **_SPANISH_SPELLINGS}
    },
    {**_SPANISH_MULTIPLIERS, **_MULTIPLIERS},
    f"{_NOT_FIRST} {_SPANISH_NOT_FIRST}",
    f"{_NEVER}|{_SPANISH_NEVER}",
    f"{_SHORT_WORDS} {_SPANISH_SHORT_WORDS}",
)


def words_of(language: str) -> Words:
    """The words of a language, English and Spanish; of another one, English."""
    return SPANISH if language == "es" else ENGLISH


def currency(symbol: str) -> str:
    """Canonical name of a currency's symbol or code; every kind of dollar and R$ is "$"."""
    if symbol.endswith("$"):
        return "$"
    return CURRENCY.get(symbol) or CURRENCY_CODES[symbol.lower().rstrip(".")]
