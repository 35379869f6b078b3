"""learning_curve.png: reward per step, accuracy with its intervals, and the logprob gap, in one picture.

Knows the metrics' names and matplotlib, which is imported only when a curve is drawn.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr.tracking.accuracy import Accuracy
from rlvr.tracking.files import write_atomic
from rlvr.tracking.metrics import Evaluation, Metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_REWARD, _LENIENT, _STRICT, _GAP, _INK, _FAINT = "#3b6fb6", "#1f8a5b", "#c8742b", "#7a5195", "#222222", "#d9d9d9"
_DPI = 150


def draw_curve(path: Path, title: str, steps: Sequence[Metrics], evaluations: Sequence[Evaluation]) -> bool:
    """Draw the curve and write it as PNG, whole or not at all. Returns False when there is nothing to draw.

    Raises UserError when the disk is full.
    """
    if not steps and not evaluations:
        return False
    # The object interface with its own canvas: pyplot would keep global state and pick a display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5.6), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    figure.suptitle(_literal(title), fontsize=12, color=_INK, x=0.02, ha="left", fontweight="bold")
    _draw_reward(top, steps)
    _draw_accuracy(top, evaluations)
    _draw_gap(bottom, steps)
    for axes in (top, bottom):
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color("#999999")
        axes.tick_params(colors="#555555", labelsize=9)
        axes.grid(axis="y", color=_FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
    bottom.set_xlabel("optimizer step", fontsize=9, color="#555555")
    bottom.locator_params(axis="x", integer=True)
    last = max([int(step["step"]) for step in steps] + [found.step for found in evaluations] + [1])
    bottom.set_xlim(-0.03 * last - 0.15, 1.03 * last + 0.15)
    if top.get_legend_handles_labels()[0]:
        top.legend(loc="upper left", bbox_to_anchor=(0, 1.12), ncols=4, frameon=False, fontsize=9, borderaxespad=0)
    buffer = io.BytesIO()
    canvas.print_figure(buffer, format="png", dpi=_DPI)
    write_atomic(path, buffer.getvalue())
    return True


def _draw_reward(axes: Axes, steps: Sequence[Metrics]) -> None:
    points = [(step["step"], step["reward/mean"]) for step in steps if "reward/mean" in step]
    if points:
        x, y = zip(*points, strict=True)
        # Single steps are noisy: a trailing mean tells the trend of a long run, dots stay visible beneath it.
        window = max(1, len(points) // 20)
        label = "reward" if window == 1 else f"reward, mean of {window} steps"
        axes.plot(x, y, ".", color=_REWARD, alpha=0.35 if window > 1 else 0.9, markersize=5, zorder=2)
        axes.plot(x, _trailing_mean(y, window), color=_REWARD, linewidth=1.6, label=label, zorder=3)
    axes.set_ylabel("reward, accuracy", fontsize=9, color="#555555")
    low = min([0.0, *(y for _, y in points if math.isfinite(y))])
    high = max([1.0, *(y for _, y in points if math.isfinite(y))])
    axes.set_ylim(low - 0.02, high + 0.03)


def _draw_accuracy(axes: Axes, evaluations: Sequence[Evaluation]) -> None:
    from matplotlib.patheffects import Normal, Stroke

    shift = 0.006 * max([found.step for found in evaluations], default=0)
    series = (
        ("accuracy, final number", _LENIENT, "o", -shift, [(found.step, found.lenient) for found in evaluations]),
        ("accuracy, strict", _STRICT, "s", shift, [(found.step, found.strict) for found in evaluations]),
    )
    for label, colour, marker, offset, found in series:
        points = [(step, *bounds) for step, value in found if (bounds := _bounds(value))]
        if not points:
            continue
        x = [step + offset for step, *_ in points]
        y = [value for _, value, _, _ in points]
        errors = [[value - low for _, value, low, _ in points], [high - value for _, value, _, high in points]]
        axes.errorbar(
            x, y, yerr=errors, color=colour, marker=marker, markersize=5.5, markeredgecolor="white",
            markeredgewidth=0.8, linewidth=1, linestyle="--", elinewidth=1.3, capsize=3, label=label, zorder=4,
        )  # fmt: skip
    measured = [(result.step, bounds) for result in evaluations if (bounds := _bounds(result.lenient))]
    for step, (value, _, high) in measured[:: max(1, len(measured) - 1)]:  # the first and the last
        axes.annotate(
            f"{value:.0%}", (step - shift, high), xytext=(0, 3), textcoords="offset points",
            ha="center", fontsize=9, color=_LENIENT, zorder=5,
            path_effects=[Stroke(linewidth=3, foreground="white"), Normal()],
        )  # fmt: skip


def _draw_gap(axes: Axes, steps: Sequence[Metrics]) -> None:
    gaps = [(step["step"], step["learner/logprob_gap"]) for step in steps if "learner/logprob_gap" in step]
    axes.set_ylabel("logprob gap", fontsize=9, color="#555555")
    if not gaps:
        axes.set_yticks([])
        axes.text(
            0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", va="center", color="#999999", fontsize=9
        )
        return
    x, y = zip(*gaps, strict=True)
    axes.plot(x, y, color=_GAP, linewidth=1.2, marker="." if len(x) <= 50 else "", markersize=5)
    axes.set_ylim(bottom=0, top=1.15 * max([value for value in y if math.isfinite(value)] or [1.0]) or 1.0)
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    axes.yaxis.get_offset_text().set_fontsize(8)
    axes.locator_params(axis="y", nbins=3)


def _bounds(found: Accuracy) -> tuple[float, float, float] | None:
    if found.value is None or found.low is None or found.high is None:
        return None
    return found.value, found.low, found.high


def _trailing_mean(values: Sequence[float], window: int) -> list[float]:
    """Mean of the last `window` values at each position, of fewer at the beginning."""
    return [sum(part) / len(part) for i in range(len(values)) if (part := values[max(0, i - window + 1) : i + 1])]


def _literal(text: str) -> str:
    """A dollar sign would open a formula."""
    return text.replace("$", r"\$")
