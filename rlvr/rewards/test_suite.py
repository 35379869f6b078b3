"""`test_suite`: does the test suite in the completion notice mistakes?

The suite must pass on the reference solution, three times, and is scored by the mutants that it kills, of those that
the trusted tests kill. It does not get the function that it tests, only a stand-in whose calls are answered from
another process, so it can neither look at the code nor change it. A kill counts only if the mutant has returned
something else than the solution did for a call that the suite made. The suite must then pass on the solution and fail
on the mutant once more, else it earns nothing: failing by chance, by the clock or by the count of runs does not pay.
Mutants that fail with an error or return None are left out: noticing those takes no test.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rlvr.records import Status, Verdict
from rlvr.rewards import code_block, programs
from rlvr.rewards.judgement import MAX_ANSWER, MAX_EVIDENCE, clip, verdict
from rlvr.rewards.mutants import mutants
from rlvr.rewards.programs import Call, Result, SuiteOutcome
from rlvr.rewards.registry import reward
from rlvr.rewards.sample import Sample
from rlvr.rewards.unit_tests import BadTests, UnitTest, read_tests
from rlvr.sandbox import plain
from rlvr.sandbox.owner import Limits

_RUNS_ON_SOLUTION = 3


@dataclass(frozen=True)
class _Problem:
    solution: str
    names: tuple[str, ...]
    mutants: tuple[str, ...]


def check_options(tests: str = "", time_s: float = 1.0, memory_mb: int = 256) -> None:
    """Raises ValueError when an option of `test_suite` has a value that means nothing."""
    if not isinstance(tests, str):
        raise ValueError("tests is the name of a column")
    if not 0 < time_s <= 60 or not 16 <= memory_mb <= 65536:
        raise ValueError("time_s must be above 0 and at most 60, memory_mb between 16 and 65536")


@reward("test_suite", version="1", check=check_options, prepare=programs.start, level=programs.level)
def test_suite(sample: Sample, *, tests: str = "", time_s: float = 1.0, memory_mb: int = 256) -> Verdict:
    """The share of mutants that the suite kills, of those that the trusted tests kill; 0 if it fails on the solution.

    tests: the column with {"solution": "def f...", "tests": [...]}, the trusted tests as `python` reads them; empty:
      the reference. time_s: processor time for one run of the suite. memory_mb: beyond the interpreter's own.
    """
    limits = Limits(time_s, 2 * time_s, memory_mb)
    try:
        problem = _problem(str(sample.extra[tests]) if tests else sample.reference, limits)
    except KeyError:
        return verdict(None, Status.BAD_REFERENCE, f"the row has no column {tests!r}")
    except BadTests as error:
        return verdict(None, Status.BAD_REFERENCE, f"the trusted tests: {error}")
    block = code_block.program(sample.completion)
    if block is None or (sample.truncated and not block.closed):
        return verdict(0.0, Status.TRUNCATED if sample.truncated else Status.NO_ANSWER, "no whole test suite")
    shown = clip(block.code.strip(), MAX_ANSWER)
    if len(block.code) > programs.MAX_CODE:
        return verdict(0.0, Status.WRONG, f"a test suite of {len(block.code)} characters", extracted=shown)
    try:
        killed = _killed(block.code, problem, limits)
    except _Refused as refusal:
        return verdict(0.0, refusal.status, clip(str(refusal), MAX_EVIDENCE), extracted=shown)
    score = killed / len(problem.mutants)
    text = f"kills {killed} of {len(problem.mutants)} mutants"
    return verdict(score, Status.OK if score == 1.0 else Status.WRONG, text, extracted=shown)


test_suite.__test__ = False  # type: ignore[attr-defined]  # not a test of ours, whatever its name


class _Refused(Exception):
    """The suite earns nothing; the message says why."""

    def __init__(self, status: Status, why: str) -> None:
        self.status = status
        super().__init__(why)


def _killed(suite: str, problem: _Problem, limits: Limits) -> int:
    """How many mutants the suite kills. Raises _Refused."""

    def fails(program: str) -> SuiteOutcome | None:
        ran = programs.run_suite(suite, problem.names, program, limits)
        if ran.tampering:
            raise _Refused(Status.TAMPERED, ran.tampering)
        return None if ran.passed else ran

    def must_pass() -> None:
        ran = fails(problem.solution)
        if ran is not None:
            raise _Refused(Status.WRONG, f"it fails on the right solution: {ran.why}")

    for _ in range(_RUNS_ON_SOLUTION):
        must_pass()
    killed = 0
    for mutant in problem.mutants:
        ran = fails(mutant)
        if ran is not None and _differs(ran.calls, problem.solution, limits):
            must_pass()
            if fails(mutant) is None:
                raise _Refused(Status.WRONG, "it fails and passes on the same program")
            killed += 1
    return killed


def _differs(calls: Sequence[tuple[Call, Result]], solution: str, limits: Limits) -> bool:
    """Whether the solution answers any of these calls otherwise."""
    outcome = programs.run_calls(solution, [call for call, _ in calls], limits)
    answers = [*outcome.results, *[Result(why="it did not return")] * (len(calls) - len(outcome.results))]
    return any(not _alike(one, other) for (_, one), other in zip(calls, answers, strict=True))


def _alike(one: Result, other: Result) -> bool:
    if one.returned and other.returned:
        return plain.same(one.value, other.value)
    return one.why.partition(":")[0] == other.why.partition(":")[0]


@lru_cache(maxsize=256)
def _problem(text: str, limits: Limits) -> _Problem:
    """Solution and mutants, all of them killed by the trusted tests by what they return. Raises BadTests."""
    wanted = read_tests(text)
    if not wanted.solution:
        raise BadTests("there is no solution")
    tests = [test for test in wanted.tests if test.call is not None]
    calls = [test.call for test in tests if test.call is not None]
    if wanted.random is not None:
        calls += wanted.random.calls
    if not calls:
        raise BadTests("a suite is for functions, and these tests call none")
    answers = programs.run_calls(wanted.solution, calls, limits).results
    if len(answers) < len(calls) or not _all_pass(tests, answers):
        raise BadTests("the solution does not pass them")
    try:
        candidates = mutants(wanted.solution)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadTests(f"the solution is no Python: {error}") from None
    kept = [mutant for mutant in candidates if _wrong_value(mutant, calls, answers, limits)]
    if not kept:
        raise BadTests("they kill no mutant of the solution")
    return _Problem(wanted.solution, tuple(dict.fromkeys(call.name for call in calls)), tuple(kept))


def _all_pass(tests: Iterable[UnitTest], answers: Sequence[Result]) -> bool:
    return all(test.passes(answer, 1e-9) for test, answer in zip(tests, answers, strict=False))


def _wrong_value(mutant: str, calls: Sequence[Call], answers: Sequence[Result], limits: Limits) -> bool:
    """Whether a mutant returns as the solution does, but something else at least once."""
    results = programs.run_calls(mutant, calls, limits).results
    if len(results) < len(calls):
        return False
    for result, answer in zip(results, answers, strict=True):
        if result.returned != answer.returned or type(result.value) is not type(answer.value):
            return False
    return any(not _alike(result, answer) for result, answer in zip(results, answers, strict=True))
