"""`python`: does the program in the completion do what its tests ask?

The program runs in the sandbox and is told inputs only. What it returns comes back as plain data and is compared
here, by exact builtin types; no object of the program's ever takes part in a comparison. Function counts for nearly
everything; form (that it compiles, runs, is clean) can be given a share, but never as much as the lightest test.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rlvr.records import Status, Verdict
from rlvr.rewards import code_block, lint, programs
from rlvr.rewards.judgement import MAX_ANSWER, MAX_EVIDENCE, clip, verdict
from rlvr.rewards.programs import Outcome, Result
from rlvr.rewards.registry import reward
from rlvr.rewards.sample import Sample
from rlvr.rewards.unit_tests import BadTests, UnitTest, read_tests
from rlvr.sandbox.owner import Cause, Limits

MAX_FORM = 0.3
#: Form is worth at most this share of the lightest test.
_OF_LIGHTEST = 0.5
_OUTPUTS = ("lines", "tokens", "exact")
_CREDITS = ("share", "all")
#: A program that has said its last word may be stopped when it takes long to end.
_REGULAR = (Cause.ENDED, Cause.STOPPED)


def check_options(
    tests: str = "",
    credit: str = "share",
    compiles: float = 0.0,
    runs: float = 0.0,
    lint: float = 0.0,
    tolerance: float = 0.0,
    output: str = "lines",
    bare: bool = True,
    time_s: float = 2.0,
    memory_mb: int = 256,
) -> None:
    """Raises ValueError when an option of `python` has a value that means nothing."""
    if not isinstance(tests, str) or not isinstance(bare, bool):
        raise ValueError("tests is the name of a column, bare true or false")
    if credit not in _CREDITS:
        raise ValueError(f"credit must be one of {', '.join(_CREDITS)}, not {credit!r}")
    if output not in _OUTPUTS:
        raise ValueError(f"output must be one of {', '.join(_OUTPUTS)}, not {output!r}")
    for name, value in (("compiles", compiles), ("runs", runs), ("lint", lint), ("tolerance", tolerance)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
            raise ValueError(f"{name} must be a number from 0 to below 1, not {value!r}")
    if compiles + runs + lint > MAX_FORM:
        raise ValueError(
            f"compiles, runs and lint together must be at most {MAX_FORM:g}: form never outweighs function"
        )
    if not 0 < time_s <= 60 or not 16 <= memory_mb <= 65536:
        raise ValueError("time_s must be above 0 and at most 60, memory_mb between 16 and 65536")
    if lint and _no_linter():
        raise ValueError("lint needs ruff: pip install ruff")


def _no_linter() -> bool:
    return lint.executable() is None


@reward("python", version="1", check=check_options, prepare=programs.start, level=programs.level)
def python(
    sample: Sample,
    *,
    tests: str = "",
    credit: str = "share",
    compiles: float = 0.0,
    runs: float = 0.0,
    lint: float = 0.0,
    tolerance: float = 0.0,
    output: str = "lines",
    bare: bool = True,
    time_s: float = 2.0,
    memory_mb: int = 256,
) -> Verdict:
    """The weighted share of tests that the program passes.

    tests: the column that holds the tests (see `unit_tests`); empty: the reference does.
    credit: "share" of the tests, or "all": 0 unless every test passes.
    compiles, runs, lint: shares of the score for form; capped below the worth of the lightest test, and lint counts
      only in proportion to the tests passed.
    tolerance: floats may differ by so much, absolutely or relatively. output: how what a script prints is compared:
      "lines" without blanks at their ends, "tokens" between blanks, "exact".
    bare: without any fence the whole completion is the program. time_s: processor time for all calls of a program, or
      for each standard input; memory_mb: beyond the interpreter's own.
    """
    try:
        text = str(sample.extra[tests]) if tests else sample.reference
        wanted = _all_tests(text, time_s, memory_mb)
    except KeyError:
        return verdict(None, Status.BAD_REFERENCE, f"the row has no column {tests!r}")
    except BadTests as error:
        return verdict(None, Status.BAD_REFERENCE, f"the tests: {error}")
    block = code_block.program(sample.completion)
    if block is None or not (block.fenced or bare):
        status = Status.TRUNCATED if sample.truncated else Status.NO_ANSWER
        return verdict(0.0, status, "no program")
    if sample.truncated and not block.closed:
        return verdict(0.0, Status.TRUNCATED, "the program was cut off")
    shown = clip(block.code.strip(), MAX_ANSWER)
    if len(block.code) > programs.MAX_CODE:
        return verdict(0.0, Status.WRONG, f"a program of {len(block.code)} characters", extracted=shown)
    marks = _run(block.code, wanted, Limits(time_s, 2 * time_s, memory_mb), tolerance, output)
    if marks.tampering:
        return verdict(0.0, Status.TAMPERED, clip(marks.tampering, MAX_EVIDENCE), extracted=shown)
    if marks.timed_out and not marks.share:
        return verdict(0.0, Status.TIMEOUT, clip(marks.evidence, MAX_EVIDENCE), extracted=shown)
    score, remark = _score(marks, block.code, credit, compiles, runs, lint)
    right = marks.share == 1.0
    evidence = clip(f"{marks.evidence}{remark}", MAX_EVIDENCE)
    return verdict(score, Status.OK if right else Status.WRONG, evidence, extracted=shown)


@dataclass(frozen=True)
class _Marks:
    """How a program did."""

    share: float
    """Of the weights of all tests."""
    lightest: float
    """Share of the lightest test."""
    compiled: bool
    ran: bool
    evidence: str
    tampering: str = ""
    timed_out: bool = False


@lru_cache(maxsize=1024)
def _all_tests(text: str, time_s: float, memory_mb: int) -> tuple[UnitTest, ...]:
    """The tests of a problem, those with random inputs included. Raises BadTests."""
    wanted = read_tests(text)
    if wanted.random is None:
        return wanted.tests
    limits = Limits(time_s, 2 * time_s, memory_mb)
    calls = wanted.random.calls
    outcome = programs.run_calls(wanted.random.solution, calls, limits)
    if len(outcome.results) < len(calls):
        raise BadTests(f"the solution does not run: {outcome.why or outcome.ran.cause.value}")
    drawn: list[UnitTest] = []
    for call, result in zip(calls, outcome.results, strict=True):
        if not result.returned:
            raise BadTests(f"the solution fails for {call}: {result.why}")
        drawn.append(UnitTest(call, "", result.value, hidden=True))
    return wanted.tests + tuple(drawn)


def _run(code: str, tests: tuple[UnitTest, ...], limits: Limits, tolerance: float, output: str) -> _Marks:
    calls = [test.call for test in tests if test.call is not None]
    if calls:
        outcome = programs.run_calls(code, calls, limits)
        results = list(outcome.results)
        results += [Result(why=_ended(outcome))] * (len(tests) - len(results))
        passed = [test.passes(result, tolerance) for test, result in zip(tests, results, strict=True)]
        return _marks(tests, passed, results, outcome)
    passed, results = [], []
    outcome = Outcome(programs.Ran(Cause.ENDED, 0, 0.0, 0.0))
    for test in tests:
        outcome = programs.run_script(code, test.stdin, limits)
        result = _printed(outcome)
        passed.append(result.returned and _same_output(str(result.value), test.expected, output, tolerance))
        results.append(result)
        if outcome.tampering or outcome.failed == "compile":
            break
    results += [Result(why=_ended(outcome))] * (len(tests) - len(results))
    passed += [False] * (len(tests) - len(passed))
    return _marks(tests, passed, results, outcome)


def _indifferent(tests: tuple[UnitTest, ...], results: list[Result]) -> bool:
    """Whether a program gives one answer to everything though different ones are right: chance earns nothing."""
    first = results[0]
    if not first.returned or not all(one.returned and programs.plain.same(one.value, first.value) for one in results):
        return False
    wanted = [(test.how, test.expected) for test in tests]
    return any(how != wanted[0][0] or not programs.plain.same(value, wanted[0][1]) for how, value in wanted)


def _marks(tests: tuple[UnitTest, ...], passed: list[bool], results: list[Result], outcome: Outcome) -> _Marks:
    indifferent = _indifferent(tests, results)
    if indifferent:
        passed = [False] * len(tests)
    total = sum(test.weight for test in tests)
    gained = sum(test.weight for test, good in zip(tests, passed, strict=True) if good)
    text = f"{sum(passed)} of {len(tests)} tests passed"
    hidden = [good for test, good in zip(tests, passed, strict=True) if test.hidden]
    if hidden and len(hidden) < len(tests):
        text += f" ({sum(hidden)} of {len(hidden)} hidden)"
    if indifferent:
        text += f"; it always answers {programs.shown(results[0].value)}"
    elif outcome.failed:
        text += f"; it does not {outcome.failed}: {outcome.why}"
    elif not all(passed):
        first = passed.index(False)
        text += f"; {_shown(tests[first], results[first])}"
    return _Marks(
        1.0 if all(passed) else gained / total,
        min(test.weight for test in tests) / total,
        compiled=outcome.failed != "compile",
        ran=not outcome.failed and outcome.ran.cause in _REGULAR and len(outcome.results) + bool(outcome.printed) > 0,
        evidence=text,
        tampering=outcome.tampering,
        timed_out=outcome.ran.cause in (Cause.CPU, Cause.WALL),
    )


def _shown(test: UnitTest, result: Result) -> str:
    what = str(test.call) if test.call is not None else f"input {clip(test.stdin, 40)!r}"
    gave = programs.shown(result.value) if result.returned else result.why
    wanted = "" if test.how.endswith(("truth", "falsity")) else f", not {programs.shown(test.expected)}"
    return f"{what}: {gave}{wanted}"


def _ended(outcome: Outcome) -> str:
    return outcome.why or f"it {outcome.ran.cause.value} before it answered"


def _printed(outcome: Outcome) -> Result:
    if outcome.printed is None:
        return Result(why="it printed too much")
    if outcome.failed or outcome.ran.cause not in _REGULAR:
        return Result(why=_ended(outcome))
    return Result(outcome.printed)


def _same_output(printed: str, expected: str, output: str, tolerance: float) -> bool:
    if output == "exact":
        return printed == expected
    if output == "tokens":
        one, other = printed.split(), expected.split()
        return len(one) == len(other) and all(_same_token(x, y, tolerance) for x, y in zip(one, other, strict=True))
    one, other = ([line.rstrip() for line in text.rstrip().split("\n")] for text in (printed, expected))
    return one == other


def _same_token(one: str, other: str, tolerance: float) -> bool:
    if one == other or not tolerance:
        return one == other
    try:
        return programs.plain.same(float(one), float(other), tolerance)
    except ValueError:
        return False


def _score(marks: _Marks, code: str, credit: str, compiles: float, runs: float, lint_share: float) -> tuple[float, str]:
    """Function, and what form adds to it."""
    function = marks.share if credit == "share" or marks.share == 1.0 else 0.0
    form = compiles * marks.compiled + runs * marks.ran
    remark = ""
    if lint_share and function:
        found = lint.findings(code)
        form += lint_share * lint.cleanliness(found) * function
        remark = f"; lint: {lint.shown(found) or 'clean'}"
    whole = compiles + runs + lint_share
    cap = _OF_LIGHTEST * marks.lightest * (1 - whole) if function < 1.0 else whole
    return (1 - whole) * function + min(form, cap), remark
