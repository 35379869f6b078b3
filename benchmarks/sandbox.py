"""How fast programs are judged in the sandbox, and whether it holds.

    python -m benchmarks.sandbox
    python -m benchmarks.sandbox --quick --check --out figures.json

One program at a time: what one core does. Seconds are of processor time, of this process, the sandbox's zygotes and
their programs together (other work on the machine does not count); `wall` is of the clock. No cache, no program twice,
no linter. `calibration` is the time of a fixed loop of the interpreter: compare machines by it. --check exits with 1
when a figure misses its target, and says which.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import Report, parser
from rlvr.rewards import Reward, Sample, programs
from rlvr.rewards.composite import CriterionSpec
from rlvr.sandbox import confine
from rlvr.sandbox.levels import Level
from rlvr.sandbox.owner import Sandbox
from rlvr.sandbox.probes import measure

CALLS = "\n".join(f"assert f({a}, {b}) == {a + b}" for a, b in ((1, 2), (-1, 1), (10, 20), (0, 0)))
SCRIPTS = '{"tests": [' + ", ".join(f'{{"stdin": "{n} 2\\n", "stdout": "{n + 2}\\n"}}' for n in range(4)) + "]}"
AT_LEAST = {"calls/programs_per_s": 250.0, "probes/level_default": 2.0}
AT_MOST = {"probes/reached_all_means": 0.0, "probes/reached_default": 0.0, "calls/misjudged": 0, "scripts/misjudged": 0}


def main() -> int:
    """Measure, and return the exit code."""
    arguments = parser(__doc__).parse_args()
    report = Report("sandbox")
    figures: dict[str, float] = {"calibration_ms": _calibration()}
    figures |= _probes()
    programs.start()
    count = 200 if arguments.quick else 1000
    figures |= _rate("calls", CALLS, "def f(a, b):  # {n}\n    return a {sign} b", count)
    script = "a, b = map(int, input().split())  # {n}\nprint(a {sign} b)"
    figures |= _rate("scripts", SCRIPTS, script, count // 4)
    programs.close()
    for key, value in figures.items():
        report.figure(key, value, at_least=AT_LEAST.get(key), at_most=AT_MOST.get(key))
    return report.finish(arguments)


def _calibration() -> float:
    started = time.process_time()
    total = 0
    for number in range(1_000_000):
        total += number & 3
    return (time.process_time() - started) * 1e3


def _probes() -> dict[str, float]:
    """What is reached with all means that this machine has, and with the default's alone: no namespaces."""
    figures: dict[str, float] = {}
    for name, without in (("all_means", ()), ("default", (confine.NAMESPACES, confine.USER_NAMESPACE))):
        sandbox = Sandbox(without=without)
        started = time.perf_counter()
        sandbox.start()
        figures[f"start_s_{name}"] = time.perf_counter() - started
        found = measure(sandbox)
        figures[f"probes/seconds_{name}"] = time.perf_counter() - started
        figures[f"probes/count_{name}"] = len(found.findings)
        figures[f"probes/reached_{name}"] = len(found.failures())
        figures[f"probes/level_{name}"] = list(Level).index(found.level)
        sandbox.close()
    return figures


def _rate(name: str, tests: str, program: str, count: int) -> dict[str, float]:
    reward = Reward.of([CriterionSpec("answer", "python")])
    work = [
        (Sample(f"```python\n{program.format(n=n, sign='-+'[n % 2])}\n```", tests), float(n % 2)) for n in range(count)
    ]
    for sample, _ in work[:20]:
        reward.grade(sample)
    cpu, started = _processor_time(), time.perf_counter()
    misjudged = sum((reward.grade(sample).score == 1.0) != (want == 1.0) for sample, want in work)
    wall = time.perf_counter() - started
    return {
        f"{name}/programs": count,
        f"{name}/programs_per_s": count / (_processor_time() - cpu),
        f"{name}/programs_per_s_wall": count / wall,
        f"{name}/misjudged": misjudged,
    }


def _processor_time() -> float:
    """Seconds of this process and of all below it, ended ones included."""
    family, total = {os.getpid()}, time.process_time()
    below = {int(entry.name): _stat(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    grown = True
    while grown:
        found = {number for number, fields in below.items() if fields and int(fields[1]) in family} - family
        family |= found
        grown = bool(found)
    tick = os.sysconf("SC_CLK_TCK")
    for number in family - {os.getpid()}:
        total += sum(map(int, below[number][11:15])) / tick
    return total


def _stat(entry: Path) -> Sequence[str]:
    try:
        return (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ()


if __name__ == "__main__":
    sys.exit(main())
