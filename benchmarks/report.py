"""What every benchmark prints, writes and promises: tables, figures with stable keys, and targets that can be missed.

Must not know what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


def parser(description: str | None) -> argparse.ArgumentParser:
    """Options that all benchmarks have: --quick, --out FILE, --check."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="a shortened run: the same figures, less certain")
    options.add_argument("--out", type=Path, metavar="FILE", help="write the figures as JSON")
    options.add_argument("--check", action="store_true", help="exit with 1 when a figure misses its target")
    return options


@dataclass
class Report:
    """Collects what a benchmark found."""

    name: str
    figures: dict[str, float] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)
    tables: dict[str, list[dict[str, object]]] = field(default_factory=dict)

    def table(self, title: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Print rows with the same keys as a table."""
        self.tables[title] = [dict(row) for row in rows]
        columns = list(rows[0])
        cells = [columns, *([_text(row[column]) for column in columns] for row in rows)]
        widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
        sys.stdout.write(f"\n{title}\n")
        for line in cells:
            sys.stdout.write(
                "  " + "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) + "\n"
            )

    def figure(
        self, key: str, value: float, unit: str = "", *, at_least: float | None = None, at_most: float | None = None
    ) -> None:
        """Note a figure; with a target, say whether it was reached."""
        self.figures[key] = value
        verdict = ""
        if (at_least is not None and value < at_least) or (at_most is not None and value > at_most):
            bound = f"at least {at_least:g}" if at_least is not None else f"at most {at_most:g}"
            verdict = f"   MISSED: {bound} {unit}".rstrip()
            self.missed.append(f"{key} is {value:.4g} {unit}, to reach: {bound}")
        sys.stdout.write(f"{key} = {value:.4g} {unit}{verdict}\n")

    def finish(self, options: argparse.Namespace) -> int:
        """Write what was asked for; the exit code."""
        if options.out:
            content = {
                "benchmark": self.name,
                "date": time.strftime("%Y-%m-%d"),
                "machine": {"processor": _processor(), "cores": os.cpu_count(), "quick": options.quick},
                "figures": self.figures,
                "missed": self.missed,
                "tables": self.tables,
            }
            options.out.write_text(json.dumps(content, indent=2) + "\n")
        for line in self.missed:
            sys.stderr.write(f"missed: {line}\n")
        return 1 if options.check and self.missed else 0


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
