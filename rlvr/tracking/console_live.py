"""The live panel: progress, the split of the last step, reward and accuracy, and the last sample completion.

Phases, evaluations and messages scroll above it and stay; the panel is redrawn in place and vanishes at the end,
leaving a last line per step, so that the scrollback reads like the plain console's. Needs rich; draws only.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

from rich.columns import Columns
from rich.console import Console as RichConsole
from rich.console import Group as RichGroup
from rich.console import RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rlvr.tracking.console import evaluation_line, printable, step_line
from rlvr.tracking.metrics import Evaluation, Metrics
from rlvr.tracking.step_clock import PARTS

_COLOURS = {
    "rollout": "blue",
    "reward": "yellow",
    "reference": "magenta",
    "learner": "green",
    "sync": "cyan",
    "probe": "bright_cyan",
    "eval": "bright_blue",
    "overhead": "red",
}
# Four redraws a second show that the run is alive, and cost next to nothing.
_REDRAWS_PER_S = 4
_SAMPLE_LINES = 6
_SPARKS = "▁▂▃▄▅▆▇█"


class LiveConsole:
    """A `Console` on a terminal. What others print while it is up appears above the panel."""

    def __init__(
        self,
        stream: TextIO,
        *,
        title: str,
        steps: int,
        now: Callable[[], float] = time.monotonic,
        width: int | None = None,
    ) -> None:
        self._title = title
        self._steps = steps
        self._now = now
        self._begun = now()
        self._phase = ""
        self._last: Metrics = {}
        self._rewards: list[float] = []
        self._accuracy = ""
        self._sample: tuple[str, str, str] | None = None
        self._rich = RichConsole(file=stream, highlight=False, markup=False, emoji=False, width=width)
        self._live = Live(
            get_renderable=self._draw,
            console=self._rich,
            refresh_per_second=_REDRAWS_PER_S,
            transient=True,
            vertical_overflow="crop",  # a small window must not scroll at every redraw
            # Only what would be printed on the terminal is moved above the panel; `2> file` stays the person's.
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=sys.stderr.isatty(),
        )
        self._live.start()

    def phase(self, text: str) -> None:
        self._phase = printable(text)
        self._above(f"{self._phase} ...")

    def step(self, metrics: Metrics) -> None:
        self._last = metrics
        self._phase = ""
        if "reward/mean" in metrics:
            self._rewards.append(float(metrics["reward/mean"]))
        self._above(step_line(metrics, self._steps))

    def evaluation(self, result: Evaluation) -> None:
        self._phase = ""
        self._accuracy = f"{result.lenient}, strict {result.strict}"
        self._above(evaluation_line(result))

    def sample(self, prompt: str, completion: str, verdict: str) -> None:
        self._sample = (printable(prompt), printable(completion), printable(verdict))

    def message(self, text: str) -> None:
        self._above(printable(text))

    def close(self) -> None:
        self._live.stop()

    def _above(self, text: str) -> None:
        self._rich.print(Text(f"[{self._now() - self._begun:7.1f}s] {text}"))
        self._live.refresh()

    def _draw(self) -> RenderableType:
        lines: list[RenderableType] = [self._progress()]
        if self._last:
            lines.append(_split_bar(self._last))
        lines.append(self._figures())
        if self._sample is not None:
            lines += _sample_lines(*self._sample)
        return Panel(RichGroup(*lines), title=Text(self._title, style="bold"), title_align="left", border_style="dim")

    def _progress(self) -> RenderableType:
        done = int(self._last.get("step", 0))
        row = Table.grid(padding=(0, 1))
        row.add_column(no_wrap=True)
        row.add_column(ratio=1)
        row.add_column(no_wrap=True, justify="right")
        bar = ProgressBar(total=self._steps, completed=done) if self._steps else Text("")
        label = Text(f"step {done}/{self._steps}") if self._steps else Text("")
        row.add_row(label, bar, Text(f"{self._now() - self._begun:.0f} s", style="dim"))
        row.expand = True
        return (
            RichGroup(row, Text(self._phase, style="bold", no_wrap=True, overflow="ellipsis")) if self._phase else row
        )

    def _figures(self) -> RenderableType:
        shown: list[tuple[str, str]] = []
        if self._rewards:
            shown.append(("reward", f"{self._rewards[-1]:.3f} {sparkline(self._rewards)}"))
        for name, label, form in (
            ("learner/logprob_gap", "logprob gap", "{:.1e}"),
            ("rollout/tokens_per_s", "generation", "{:.0f} tokens/s"),
            ("learner/tokens_per_s", "learning", "{:.0f} tokens/s"),
            ("rollout/length_mean", "length", "{:.0f} tokens"),
            ("groups/total_trained", "trained groups", "{:d}"),
            ("groups/total_dropped", "dropped groups", "{:d}"),
            ("groups/total_failed", "failed groups", "{:d}"),
        ):
            if name in self._last:
                shown.append((label, form.format(self._last[name])))
        lines: list[RenderableType] = []
        if self._accuracy:
            lines.append(Text("accuracy ", style="dim").append(self._accuracy, style="not dim"))
        if shown:
            cells = (Text(f"{label} ", style="dim").append(value, style="not dim") for label, value in shown)
            lines.append(Columns(cells, padding=(0, 3)))
        return RichGroup(*lines)


def _split_bar(metrics: Metrics) -> RenderableType:
    """The last step as a bar of its parts, with a legend."""
    parts = [(part, float(metrics.get(f"time/alone/{part}_s", 0.0))) for part in PARTS]
    parts.append(("overhead", float(metrics.get("time/overhead_s", 0.0))))
    total = sum(seconds for _, seconds in parts)
    if total <= 0:
        return Text("")
    bar, legend = Text(no_wrap=True, overflow="crop"), Text(overflow="fold")
    cells, used, before = 40, 0, 0.0
    for part, seconds in parts:
        before += seconds
        until = round(cells * before / total)
        bar.append("█" * (until - used), style=_COLOURS[part])
        used = until
        if seconds >= 0.05:
            legend.append("■ ", style=_COLOURS[part]).append(f"{part} {seconds:.1f} s  ")
    return RichGroup(bar.append(f" {total:.1f} s", style="dim"), legend)


def _sample_lines(prompt: str, completion: str, verdict: str) -> list[RenderableType]:
    lines = [line for line in completion.strip().splitlines() if line.strip()]
    hidden = len(lines) - _SAMPLE_LINES
    shown = lines[:_SAMPLE_LINES] + ([f"... {hidden} more lines"] if hidden > 0 else [])
    question = (prompt.strip().splitlines() or [""])[-1]
    return [
        Text(f"last sample: {question}", style="dim", no_wrap=True, overflow="ellipsis"),
        *(Text(f"  {line}", no_wrap=True, overflow="ellipsis") for line in shown),
        Text(f"  -> {verdict}", style="dim", no_wrap=True, overflow="ellipsis"),
    ]


def sparkline(values: list[float], width: int = 24) -> str:
    """The last `width` values as blocks, from their smallest to their largest."""
    recent = values[-width:]
    low, high = min(recent), max(recent)
    if not high > low:
        return _SPARKS[0] * len(recent)
    return "".join(_SPARKS[round((value - low) / (high - low) * (len(_SPARKS) - 1))] for value in recent)
