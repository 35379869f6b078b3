"""Words that follow a number: which of them are units, which multiply it, which make it no number at all.

Data only. Must not know how a number is written.
"""

from __future__ import annotations

import re

_SPELLINGS = {
    "$": "dollar dollars usd bucks",
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
#: Spelling in lower case -> canonical unit.
UNITS = {spelling: unit for unit, spellings in _SPELLINGS.items() for spelling in spellings.split()}

#: Symbols that stand before or after the number without a space.
CURRENCY = {"€": "euro", "£": "pound sterling", "¥": "yen", "₹": "rupee", "¢": "cent"}
CURRENCY_CODES = {"usd": "$", "eur": "euro", "gbp": "pound sterling", "inr": "rupee", "rs": "rupee"}

MULTIPLIERS = {
    "hundred": 10**2,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
    "dozen": 12,
}
#: `$5k`: only after a currency, elsewhere k, M and B are units or variables.
CURRENCY_SUFFIXES = {"k": 10**3, "m": 10**6, "mn": 10**6, "b": 10**9, "bn": 10**9}

#: As the first word after a number, these continue the number, or hedge: "7 or eight", "3 fifths", "5 squared".
_NOT_FIRST_TEXT = (
    "or and to nor plus minus over not choose mod modulo half halves third thirds fourth fourths fifth fifths "
    "sixth sixths seventh sevenths eighth eighths ninth ninths tenth tenths hundredth hundredths thousandth "
    "thousandths point divided multiplied root roots sin cos tan log exp sqrt infinity"
)
NOT_FIRST = frozenset(_NOT_FIRST_TEXT.split())
_NUMBER_WORDS = (
    "half|third|quarter|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|"
    "sixteen|seventeen|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand"
)
#: Anywhere after a number, these say that it is not the answer, or not all of it.
NEVER = re.compile(
    r"\b(?:maybe|perhaps|possibly|alternatively|factorial|squared|cubed|sqrt|infinity|square\s+roots?"
    rf"|(?:and|or|to|plus|minus|times|over|by)\s+(?:an?\s+)?(?:{_NUMBER_WORDS}))\b",
    re.IGNORECASE,
)
#: Words of one or two letters that may follow a number; any other so short is read as a variable.
_SHORT_WORDS_TEXT = "of in at a an by to on is as it he we i up my so or if"
SHORT_WORDS = frozenset(_SHORT_WORDS_TEXT.split())


def currency(symbol: str) -> str:
    """Canonical name of a currency's symbol or code; every kind of dollar and R$ is "$"."""
    if symbol.endswith("$"):
        return "$"
    return CURRENCY.get(symbol) or CURRENCY_CODES[symbol.lower().rstrip(".")]
