"""The learning curve is a picture whatever there is to draw, and no file when there is nothing."""

from __future__ import annotations

import math

import pytest

from rlvr.tracking.curve import draw_curve
from tests.tracking_samples import Result, result

STEPS = [{"step": n, "reward/mean": 0.1 * n, "learner/logprob_gap": 1e-5 * n} for n in range(1, 9)]


@pytest.mark.parametrize(
    ("steps", "evaluations"),
    [
        (STEPS, [result(0, 37, 20), result(8, 71, 60)]),
        (STEPS[:1], []),
        ([], [result(0, 37, 20)]),
        ([{"step": 1}], []),
        ([{"step": 1, "reward/mean": math.nan, "learner/logprob_gap": math.inf}], []),
        ([{"step": 1, "reward/mean": -3.0, "learner/logprob_gap": 0.0}], [result(0, 0, 0), result(1, 100, 100)]),
        ([], [Result(0, *(result(0, 0, 0, n=0).lenient,) * 2)]),
        ([{"step": n, "reward/mean": 0.5, "learner/logprob_gap": 1e-5} for n in range(1, 500)], []),
    ],
)
def test_it_is_a_png(tmp_path, steps, evaluations):
    assert draw_curve(tmp_path / "c.png", r"run $\alpha_{", steps, evaluations)
    picture = (tmp_path / "c.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 10_000
    assert [path.name for path in tmp_path.iterdir()] == ["c.png"]


def test_nothing_is_drawn_of_nothing(tmp_path):
    assert not draw_curve(tmp_path / "c.png", "run", [], [])
    assert list(tmp_path.iterdir()) == []


def test_pictures_of_different_runs_differ(tmp_path):
    draw_curve(tmp_path / "a.png", "run", STEPS, [])
    draw_curve(tmp_path / "b.png", "run", STEPS, [result(0, 37, 20)])
    assert (tmp_path / "a.png").read_bytes() != (tmp_path / "b.png").read_bytes()
