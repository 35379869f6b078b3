"""What the person sees while a run goes on: a live panel on a terminal, plain lines elsewhere, or nothing.

Formatting is pure (`step_line`, `evaluation_line`); the classes only decide where lines go. Text from models,
data and errors is shown as text: never as markup, never as terminal control codes. Knows the metrics' names.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from typing import Protocol, TextIO

from rlvr.errors import ConfigError
from rlvr.tracking.metrics import Evaluation, Metrics
from rlvr.tracking.step_clock import PARTS
from rlvr.tracking.text import clean

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Console(Protocol):
    """Where a run shows what it does. Calls never fail for lack of a terminal, and never block."""

    def phase(self, text: str) -> None:
        """The run begins something that takes a while: "starting 1 engine"."""

    def step(self, metrics: Metrics) -> None:
        """A step is done; `metrics` are named as in `metrics.py`."""

    def evaluation(self, result: Evaluation) -> None:
        """An evaluation is done."""

    def sample(self, prompt: str, completion: str, verdict: str) -> None:
        """The latest completion, and what was decided about it."""

    def message(self, text: str) -> None:
        """Something to know that is neither of those."""

    def close(self) -> None:
        """Leave the terminal as it was. Closing twice is fine."""


def open_console(mode: str, *, title: str, steps: int, stream: TextIO) -> Console:
    """The console that `track.console` names; auto is live on a terminal and plain lines elsewhere.

    `steps` is the number of steps to come, 0 for a run without any. Raises ConfigError for an unknown mode.
    """
    if mode == "auto":
        mode = "live" if stream.isatty() and os.environ.get("TERM") != "dumb" else "plain"
    if mode == "off":
        return OffConsole()
    if mode == "plain":
        return PlainConsole(stream, steps)
    if mode == "live":
        from rlvr.tracking.console_live import LiveConsole

        return LiveConsole(stream, title=title, steps=steps)
    raise ConfigError(f"track.console={mode}: must be auto, live, plain or off")


class OffConsole:
    """track.console=off."""

    def phase(self, text: str) -> None:
        """Nothing to show."""

    def step(self, metrics: Metrics) -> None:
        """Nothing to show."""

    def evaluation(self, result: Evaluation) -> None:
        """Nothing to show."""

    def sample(self, prompt: str, completion: str, verdict: str) -> None:
        """Nothing to show."""

    def message(self, text: str) -> None:
        """Nothing to show."""

    def close(self) -> None:
        """Nothing to leave."""


class PlainConsole:
    """One line per phase, step and evaluation, each with the seconds since the start: for logs and pipes."""

    def __init__(self, stream: TextIO, steps: int, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._steps = steps
        self._now = now
        self._begun = now()
        self._gone = False

    def phase(self, text: str) -> None:
        self._line(f"{printable(text)} ...")

    def step(self, metrics: Metrics) -> None:
        self._line(step_line(metrics, self._steps))

    def evaluation(self, result: Evaluation) -> None:
        self._line(evaluation_line(result))

    def sample(self, prompt: str, completion: str, verdict: str) -> None:
        """Not in plain lines: the ledger has all of them."""

    def message(self, text: str) -> None:
        self._line(printable(text))

    def close(self) -> None:
        """Every line was flushed when it was written."""

    def _line(self, text: str) -> None:
        """A reader that went away (`| head`, a closed terminal) must not end a run of hours: the files have it all."""
        if self._gone:
            return
        encoding = self._stream.encoding or "utf-8"
        line = f"[{self._now() - self._begun:7.1f}s] {text}\n".encode(encoding, "replace").decode(encoding)
        try:
            self._stream.write(line)
            self._stream.flush()
        except OSError:
            self._gone = True


def step_line(metrics: Metrics, steps: int) -> str:
    """A step in one line; what was not measured is left out."""
    shown = [f"step {metrics['step']}" + (f"/{steps}" if steps else "")]
    for name, label, form in (
        ("reward/mean", "reward", "{:.3f}"),
        ("learner/logprob_gap", "gap", "{:.1e}"),
        ("groups/trained", "trained", "{:d}"),
        ("groups/dropped", "dropped", "{:d}"),
        ("groups/failed", "failed", "{:d}"),
        ("rollout/length_mean", "length", "{:.0f}"),
        ("rollout/tokens_per_s", "tokens/s", "{:.0f}"),
    ):
        if name in metrics and not (name == "groups/failed" and metrics[name] == 0):
            shown.append(f"{label} {form.format(metrics[name])}")
    return " | ".join([*shown, time_split(metrics)])


def time_split(metrics: Metrics) -> str:
    """ "12.3 s: rollout 8.1, learner 3.9, sync 0.2, overhead 0.1": parts without overlap, in seconds."""
    parts = [(part, metrics.get(f"time/alone/{part}_s", 0.0)) for part in PARTS]
    parts.append(("overhead", metrics.get("time/overhead_s", 0.0)))
    shown = ", ".join(f"{part} {seconds:.1f}" for part, seconds in parts if seconds >= 0.05)
    return f"{metrics.get('time/step_s', 0.0):.1f} s" + (f": {shown}" if shown else "")


def evaluation_line(result: Evaluation) -> str:
    """An evaluation in one line."""
    when = "before training" if result.step == 0 else f"after step {result.step}"
    text = f"accuracy {when}: {result.lenient}, strict {result.strict}"
    unjudged = f", {result.unjudged} completions not judged" if result.unjudged else ""
    return f"{text}{unjudged} | {result.tokens} tokens in {result.seconds:.1f} s"


def printable(text: str) -> str:
    """`text` on a terminal that it cannot take over: control characters (escape codes among them) made visible."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", clean(text))
