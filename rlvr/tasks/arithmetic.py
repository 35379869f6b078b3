"""Generated arithmetic: problems in words, by operation and difficulty, with answers that are whole numbers.

A problem is an operation with its two operands; how it is worded is secondary. A fifth of the operand pairs of each
category is held out, so that no held-out problem occurs in the training split in whatever wording or order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from random import Random

from rlvr.config import ArithmeticConfig, Config
from rlvr.errors import ConfigError
from rlvr.tasks.few_shot import NEXT_PROBLEM
from rlvr.tasks.rows import BadRows
from rlvr.tasks.task import Problem, Splits

#: Solutions hold no blank line, so the one between problems already ends an answer: it costs one token, not three.
STOP = ("\n\n", NEXT_PROBLEM)
MAX_DIFFICULTY = 4
_HELD_OUT = 5  # one in so many operand pairs
_ENUMERABLE = 10_000  # larger sets of operand pairs are drawn from, not listed

_WORDINGS = {
    "add": (
        "What is {a} + {b}?",
        "What is {a} plus {b}?",
        "What is the sum of {a} and {b}?",
        "Add {b} to {a}.",
        "Tom has {a} apples and buys {b} more. How many apples does he have now?",
        "There are {a} birds on a tree, and {b} more come. How many birds are there now?",
        "There are {a} red cars and {b} blue cars. How many cars are there?",
        "A farmer picks {a} pears in the morning and {b} in the evening. How many pears does he pick?",
        "A baker makes {a} loaves today and made {b} yesterday. How many loaves did he make?",
        "Ana reads {a} pages before lunch and {b} pages after it. How many pages does she read?",
        "A bus carries {a} people, and {b} more get on. How many people are on the bus?",
        "Luis has {a} coins, and his sister gives him {b} more. How many coins does he have now?",
    ),
    "subtract": (
        "What is {a} - {b}?",
        "What is {a} minus {b}?",
        "What is the difference of {a} and {b}?",
        "Subtract {b} from {a}.",
        "Tom has {a} apples and eats {b} of them. How many apples are left?",
        "There are {a} birds on a tree, and {b} fly away. How many birds stay?",
        "A rope is {a} meters long, and {b} meters are cut off. How many meters are left?",
        "A shop has {a} pens and sells {b} of them. How many pens are left?",
        "A bus carries {a} people, and {b} get off. How many people stay on the bus?",
        "Ana has {a} coins and spends {b} of them. How many coins does she have left?",
        "Luis bakes {a} cookies, and {b} of them burn. How many cookies are good?",
        "There are {a} eggs in a basket, and {b} break. How many eggs are whole?",
    ),
    "multiply": (
        "What is {a} * {b}?",
        "What is {a} times {b}?",
        "What is the product of {a} and {b}?",
        "Multiply {a} by {b}.",
        "There are {a} boxes with {b} apples in each. How many apples are there?",
        "A ticket costs {a} dollars. How many dollars do {b} tickets cost?",
        "Tom runs {a} miles a day. How many miles does he run in {b} days?",
        "A garden has {a} rows of {b} trees. How many trees are there?",
        "Ana reads {a} pages every day. How many pages does she read in {b} days?",
        "A box holds {a} eggs. How many eggs do {b} boxes hold?",
        "There are {a} cars with {b} people in each. How many people are there?",
        "A baker sells {a} loaves every hour. How many loaves does he sell in {b} hours?",
    ),
    "divide": (
        "What is {a} / {b}?",
        "What is {a} divided by {b}?",
        "What is the quotient of {a} and {b}?",
        "Divide {a} by {b}.",
        "{b} children share {a} apples equally. How many apples does each child get?",
        "A rope of {a} meters is cut into {b} equal pieces. How many meters long is each piece?",
        "A garden has {a} trees in {b} equal rows. How many trees are in each row?",
        "Tom saves {a} dollars in {b} days, the same every day. How many dollars does he save a day?",
        "A baker puts {a} loaves into {b} equal baskets. How many loaves are in each basket?",
        "Ana reads {a} pages in {b} days, the same every day. How many pages does she read a day?",
        "There are {a} people in {b} full buses of one size. How many people are in each bus?",
        "{b} coins weigh {a} grams together, each the same. How many grams does one coin weigh?",
    ),
}
_PLAIN = 4  # so many wordings of each operation are plain questions; the rest are stories
_SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}
_COMMUTES = {"add", "multiply"}

Pair = tuple[int, int]


@dataclass(frozen=True)
class _Category:
    operation: str
    difficulty: int

    @property
    def name(self) -> str:
        return f"{self.operation}/{self.difficulty}"


def load(config: Config, bad: BadRows) -> Splits:
    """The problems that task.arithmetic describes, generated from run.seed. Categories share each split equally.

    Raises ConfigError when the settings make no sense, or there are fewer problems than asked for.
    """
    settings = config.task.arithmetic
    categories = _categories(settings)
    train = _split(categories, settings, config.run.seed, held_out=False)
    test = _split(categories, settings, config.run.seed, held_out=True)
    return Splits(train, test)


def _categories(settings: ArithmeticConfig) -> list[_Category]:
    problems = [
        f"task.arithmetic.{name}: {value!r} is not one of {', '.join(map(str, known))}"
        for name, values, known in (
            ("operations", settings.operations, tuple(_WORDINGS)),
            ("difficulties", settings.difficulties, tuple(range(1, MAX_DIFFICULTY + 1))),
        )
        for value in values
        if value not in known
    ]
    for name in ("operations", "difficulties"):
        values = getattr(settings, name)
        if not values:
            problems.append(f"task.arithmetic.{name} is empty")
        elif len(set(values)) != len(values):
            problems.append(f"task.arithmetic.{name} names something twice: {list(values)}")
    problems += [
        f"task.arithmetic.{name} must be at least 1, is {getattr(settings, name)}"
        for name in ("train_size", "test_size")
        if getattr(settings, name) < 1
    ]
    if problems:
        raise ConfigError(problems)
    return [_Category(name, difficulty) for name in settings.operations for difficulty in settings.difficulties]


def _split(categories: list[_Category], settings: ArithmeticConfig, seed: int, *, held_out: bool) -> list[Problem]:
    """The problems of one split, taken from the categories in turn; a category that has run out is passed over."""
    name, size = ("test", settings.test_size) if held_out else ("train", settings.train_size)
    streams = [(category, _stream(category, settings.wordings, seed, held_out)) for category in categories]
    problems: list[Problem] = []
    while streams and len(problems) < size:
        alive = []
        for category, stream in streams:
            if (drawn := next(stream, None)) is None:
                continue
            alive.append((category, stream))
            if len(problems) < size:
                problems.append(_problem(category, *drawn, name, len(problems) + 1, settings.show_work))
        streams = alive
    if len(problems) < size:
        raise ConfigError(
            f"task.arithmetic.{name}_size={size}, but there are only {len(problems)} different problems: "
            "lower it, or add operations or difficulties"
        )
    return problems


def _stream(category: _Category, kind: str, seed: int, held_out: bool) -> Iterator[tuple[Pair, str]]:
    """Operand pairs with a wording, without repetition: every pair once before any comes in a second wording."""
    random = Random(f"arithmetic/{seed}/{category.name}/{'test' if held_out else 'train'}")
    wordings = _wordings(category.operation, kind)
    left, right = _ranges(category)
    if len(left) * len(right) > _ENUMERABLE:
        seen: set[Pair] = set()
        while len(seen) < _ENUMERABLE:
            pair = _operands(category, random.choice(left), random.choice(right))
            if pair not in seen and (_rank(category, pair, seed) % _HELD_OUT == 0) is held_out:
                seen.add(pair)
                yield pair, random.choice(wordings)
        return
    pairs = sorted({_operands(category, x, y) for x in left for y in right})
    keys = sorted({_key(category, pair) for pair in pairs}, key=lambda key: _rank(category, key, seed))
    apart = set(keys[: len(keys) // _HELD_OUT])
    pairs = [pair for pair in pairs if (_key(category, pair) in apart) is held_out]
    random.shuffle(pairs)
    first = {pair: random.randrange(len(wordings)) for pair in pairs}
    for turn in range(len(wordings)):
        for pair in pairs:
            yield pair, wordings[(first[pair] + turn) % len(wordings)]


def _wordings(operation: str, kind: str) -> tuple[str, ...]:
    """The wordings of an operation: all, plain questions, or stories."""
    every = _WORDINGS[operation]
    return {"all": every, "plain": every[:_PLAIN], "stories": every[_PLAIN:]}[kind]


def _ranges(category: _Category) -> tuple[range, range]:
    """Where the two numbers of a problem are drawn from. For a division: quotient and divisor, so that it is exact."""
    digits = category.difficulty
    if category.operation in ("add", "subtract"):
        return _numbers(digits), _numbers(digits)
    # 1x1, 2x1, 2x2, 3x2 digits; a factor of 1 would make no problem.
    longer, shorter = digits // 2 + 1, (digits + 1) // 2
    return _numbers(longer, least=2), _numbers(shorter, least=2)


def _numbers(digits: int, least: int = 1) -> range:
    """All numbers of so many digits, from `least` on."""
    return range(max(least, 10 ** (digits - 1)), 10**digits)


def _operands(category: _Category, x: int, y: int) -> Pair:
    """The operands as they are written."""
    if category.operation == "subtract":
        return max(x, y), min(x, y)  # no negative answers
    if category.operation == "divide":
        return x * y, y
    return x, y


def _key(category: _Category, pair: Pair) -> Pair:
    """What makes two problems the same one: 3 + 4 and 4 + 3 are."""
    return (min(pair), max(pair)) if category.operation in _COMMUTES else pair


def _rank(category: _Category, pair: Pair, seed: int) -> int:
    """A number by chance for each problem, which decides whether it is held out."""
    text = f"{seed}/{category.name}/{_key(category, pair)}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def _problem(category: _Category, pair: Pair, wording: str, split: str, number: int, show_work: bool) -> Problem:
    a, b = pair
    answer = {"add": a + b, "subtract": a - b, "multiply": a * b, "divide": a // b}[category.operation]
    return Problem(
        id=f"{split}/{number}",
        question=wording.format(a=a, b=b),
        reference=str(answer),
        solution=f"{a} {_SIGNS[category.operation]} {b} = {answer}" if show_work else "",
        category=category.name,
        file=f"arithmetic/{split}",
        line=number,
        row={"operation": category.operation, "difficulty": category.difficulty, "operands": [a, b]},
    )
