"""How fast and how exact the answer verifiers are: graded per second and core with full verdicts, and the slowest.

    python -m benchmarks.verifiers
    python -m benchmarks.verifiers --quick --check --out figures.json --gsm8k FOLDER

One process, one core, no cache, no completion twice. Seconds are of this process's processor time (other work on the
machine does not count), in the symbolic rows with that of the child processes; their quantiles, and the slowest bomb,
are of the clock. `calibration` is the
time of a fixed loop of the interpreter: compare machines by it. --check exits with 1 when a figure misses its target,
and says which.
"""

from __future__ import annotations

import gc
import json
import random
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.report import Report, parser
from rlvr.rewards import Reward, Sample, symbolic
from rlvr.rewards.audit import RIGHT_KINDS, WRONG_KINDS, right_spellings, wrong_spellings
from rlvr.rewards.composite import CriterionSpec
from rlvr.rewards.worked_steps import verified_annotations

GSM8K = Path(__file__).resolve().parents[2] / "shared" / "data" / "gsm8k"
AT_LEAST = {"numeric/graded_per_s": 30_000, "symbolic/graded_per_s": 1_000}
AT_MOST = {
    "numeric/p99_ms": 0.1,
    "numeric/wrong_accepted": 0,
    "numeric/right_refused": 0,
    "symbolic/wrong_accepted": 0,
    "symbolic/right_refused": 0,
    "bombs/slowest_s": 2.0,
    "bombs/child_memory_mb": 512,
    "bombs/accepted": 0,
    "steps/annotations_wrong": 0,
}

#: Answers as mathematics courses have them: (reference, the same, another).
SYMBOLIC = (
    ("2\\sqrt{{{n}}}", "\\sqrt{{4\\cdot{n}}}", "{n}\\sqrt{{2}}+1"),
    ("\\frac{{{n}\\pi}}{{3}}", "\\pi\\cdot\\frac{{{n}}}{{3}}", "\\frac{{{n}\\pi}}{{4}}"),
    ("x^2-{n}", "-{n}+x^2", "x^2+{n}"),
    ("(x+{n})^2", "x^2+2\\cdot{n}x+{n}^2", "x^2+{n}^2"),
    ("\\frac{{x+{n}}}{{x-1}}", "\\frac{{{n}+x}}{{-1+x}}", "\\frac{{x-{n}}}{{x-1}}"),
    ("({n}, \\frac{{1}}{{2}})", "({n}, 0.5)", "(\\frac{{1}}{{2}}, {n})"),
    ("[-{n}, \\infty)", "x \\ge -{n}", "(-{n}, \\infty)"),
    ("\\{{{n}, -{n}\\}}", "\\{{-{n}, {n}\\}}", "\\{{{n}\\}}"),
    ("y={n}x+1", "{n}x-y+1=0", "y={n}x-1"),
    ("e^{{{n}}}-1", "-1+\\exp({n})", "e^{{{n}}}+1"),
    ("{n}\\sin(\\frac{{\\pi x}}{{5}})+1", "{n}*sin(pi*x/5)+1", "{n}\\cos(\\frac{{\\pi x}}{{5}})+1"),
    ("\\frac{{{n}}}{{7}}", "\\dfrac{{{n}}}{{7}}", "\\frac{{7}}{{{n}}}"),
    ("\\log_2 {n}", "\\frac{{\\ln {n}}}{{\\ln 2}}", "\\log_3 {n}"),
    ("\\binom{{{n}}}{{2}}x", "\\frac{{{n}\\cdot({n}-1)}}{{2}}x", "\\binom{{{n}}}{{3}}x"),
    ("{n}:9", "{n} : 9", "9:{n}"),
    ("{n}+3i", "3i+{n}", "{n}-3i"),
)
BOMBS = (
    "9" * 10**6,
    "9^{9^{9^9}}",
    "2^{2^{2^{2^{2^{2^2}}}}}",
    "(10^6)!",
    "((((3!)!)!)!)!",
    "e^{e^{e^{e^{e}}}}",
    "x^{x^{x^{x^{x}}}}",
    "(1+x)^{100000}",
    "\\sqrt{" * 200 + "2" + "}" * 200,
    "(" * 500 + "x" + ")" * 500,
    "x!" * 50 + "y",
    "\\binom{10^9}{5\\cdot10^8}",
    "\\pi^{\\pi^{\\pi^{\\pi}}}",
    "\\prod_{k=1}^{10^8}k",
    "(10^{9}\\sqrt2)!",
    "\\sinh(10^9\\sqrt2)",
    "\\frac{1}{" * 40 + "x" + "}" * 40,
)


def main() -> int:
    """Measure, and return the exit code."""
    options = parser(__doc__)
    options.add_argument("--gsm8k", type=Path, default=GSM8K, help="folder with train.jsonl and test.jsonl")
    arguments = options.parse_args()
    if not (arguments.gsm8k / "test.jsonl").is_file():
        options.error(f"no {arguments.gsm8k}/test.jsonl: name the folder with --gsm8k")
    every = 10 if arguments.quick else 1
    report = Report("verifiers")
    figures: dict[str, float] = {"calibration_ms": _calibration()}
    figures |= _numeric(arguments.gsm8k, every)
    figures |= _symbolic(60 if arguments.quick else 400)
    figures |= _bombs()
    figures |= _steps(arguments.gsm8k, every)
    for key, value in figures.items():
        report.figure(key, value, at_least=AT_LEAST.get(key), at_most=AT_MOST.get(key))
    return report.finish(arguments)


def _calibration() -> float:
    started = time.process_time()
    total = 0
    for number in range(1_000_000):
        total += number & 3
    return (time.process_time() - started) * 1e3


def _answers(folder: Path, split: str, every: int) -> list[str]:
    lines = (folder / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["answer"] for line in lines[::every]]


def _numeric(folder: Path, every: int) -> dict[str, float]:
    """Every spelling of every answer of GSM8K's test split, each string once."""
    reward = Reward.of([CriterionSpec("answer", "numeric_answer")])
    seen: set[str] = set()
    work: list[tuple[Sample, float]] = []
    for answer in _answers(folder, "test", every):
        reference = answer.rpartition("####")[2].strip()
        for want, spellings in ((1.0, right_spellings), (0.0, wrong_spellings)):
            for _, completion in spellings(reference):
                if completion not in seen:
                    seen.add(completion)
                    work.append((Sample(completion, reference), want))
    random.Random(0).shuffle(work)
    seconds, mistakes = _grade(reward, work, time.process_time)
    return {
        "numeric/kinds_right": len(RIGHT_KINDS),
        "numeric/kinds_wrong": len(WRONG_KINDS),
        "numeric/completions": len(work),
        "numeric/graded_per_s": len(work) / sum(seconds),
        "numeric/p50_ms": _quantile(seconds, 0.5) * 1e3,
        "numeric/p99_ms": _quantile(seconds, 0.99) * 1e3,
        "numeric/wrong_accepted": mistakes[0.0],
        "numeric/right_refused": mistakes[1.0],
    }


def _symbolic(repeats: int) -> dict[str, float]:
    """Answers with symbols, right and wrong, in many instances."""
    reward = Reward.of([CriterionSpec("answer", "math_answer")])
    reward.prepare()
    work: list[tuple[Sample, float]] = []
    for number in range(11, 11 + repeats):
        for reference, same, other in SYMBOLIC:
            for want, answer in ((1.0, same), (0.0, other)):
                completion = f"\\boxed{{{answer.format(n=number)}}}"
                work.append((Sample(completion, reference.format(n=number)), want))
    cpu = _with_children()
    seconds, mistakes = _grade(reward, work, time.perf_counter)
    return {
        "symbolic/completions": len(work),
        "symbolic/graded_per_s": len(work) / (_with_children() - cpu),
        "symbolic/p50_ms": _quantile(seconds, 0.5) * 1e3,
        "symbolic/p99_ms": _quantile(seconds, 0.99) * 1e3,
        "symbolic/wrong_accepted": mistakes[0.0],
        "symbolic/right_refused": mistakes[1.0],
    }


def _bombs() -> dict[str, float]:
    """Answers that would cost a computer algebra system everything."""
    reward = Reward.of([CriterionSpec("answer", "math_answer")])
    slowest, accepted, memory = 0.0, 0, 0.0
    for reference in ("\\sqrt{2}", "x+\\sqrt{x}", "\\int_0^1 x dx", "7"):
        for bomb in BOMBS:
            started = time.perf_counter()
            verdict = reward.grade(Sample(f"\\boxed{{{bomb}}}", reference))
            slowest = max(slowest, time.perf_counter() - started)
            accepted += verdict.score != 0.0
            memory = max([memory, *map(_peak_mb, symbolic.child_ids())])
    survived = reward.grade(Sample("\\boxed{\\sqrt8}", "2\\sqrt2")).score == 1.0
    return {
        "bombs/count": 4 * len(BOMBS),
        "bombs/slowest_s": slowest,
        "bombs/child_memory_mb": memory,
        "bombs/own_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "bombs/accepted": accepted + (not survived),
    }


def _with_children() -> float:
    """Seconds of processor time of this process and the symbolic children."""
    return time.process_time() + sum(symbolic.processor_time(child) or 0.0 for child in symbolic.child_ids())


def _peak_mb(process: int) -> float:
    status = Path(f"/proc/{process}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def _steps(folder: Path, every: int) -> dict[str, float]:
    """GSM8K's annotations, and whole solutions as completions."""
    annotated = [
        right
        for split in ("train", "test")
        for text in _answers(folder, split, every)
        for _, right in verified_annotations(text)
    ]
    reward = Reward.of([CriterionSpec("steps", "worked_steps")])
    work = [(Sample(text, text), 1.0) for text in _answers(folder, "test", every)]
    seconds, mistakes = _grade(reward, work, time.process_time)
    return {
        "steps/annotations": len(annotated),
        "steps/annotations_wrong": annotated.count(False),
        "steps/solutions_not_full": mistakes[1.0],
        "steps/graded_per_s": len(work) / sum(seconds),
    }


def _grade(
    reward: Reward, work: Sequence[tuple[Sample, float]], clock: Callable[[], float]
) -> tuple[list[float], dict[float, int]]:
    """Seconds of each grading, and by the score that was due how often another one was given."""
    for sample, _ in work[:200]:
        reward.grade(sample)
    gc.collect()
    gc.freeze()  # a run holds a group of completions, not all of them: the collector shall not walk the material
    seconds: list[float] = []
    mistakes = {0.0: 0, 1.0: 0}
    for sample, want in work:
        started = clock()
        verdict = reward.grade(sample)
        seconds.append(clock() - started)
        mistakes[want] += verdict.score != want
    return seconds, mistakes


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


if __name__ == "__main__":
    sys.exit(main())
