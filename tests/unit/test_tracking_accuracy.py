"""pass@1 and its interval."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.tracking.accuracy import Accuracy, accuracy, wilson


def test_one_sample_per_problem_gives_the_published_wilson_interval():
    # 81 of 263: the worked example of Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
    found = accuracy([[index < 81] for index in range(263)])
    assert found.value == pytest.approx(81 / 263)
    assert (found.low, found.high) == (pytest.approx(0.2553, abs=5e-5), pytest.approx(0.3662, abs=5e-5))
    assert found.n == 263


@pytest.mark.parametrize(("right", "low", "high"), [(0, 0.0, 0.1611), (20, 0.8389, 1.0)])
def test_no_and_all_right_still_have_an_interval(right, low, high):
    found = accuracy([[index < right] for index in range(20)])
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


def test_copies_of_a_sample_add_no_certainty():
    once = accuracy([[index < 30] for index in range(100)])
    copied = accuracy([[index < 30] * 8 for index in range(100)])
    assert copied == once


def test_independent_samples_of_equal_problems_count_fully():
    mixed = accuracy([[True, False, False, False]] * 50)
    assert (mixed.low, mixed.high) == wilson(0.25, 200)


def test_the_clustered_interval_covers_as_promised():
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        abilities = generator.beta(0.5, 0.5, size=120)  # mean 0.5; most problems are always or never solved
        outcomes = generator.random((120, 4)) < abilities[:, None]
        found = accuracy(outcomes.tolist())
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0.5 <= found.high
    assert 0.92 <= covered / 400 <= 0.98


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=6), min_size=1, max_size=40))
def test_the_interval_holds_the_value_and_stays_between_0_and_1(problems):
    found = accuracy(problems)
    assert found.value is not None
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.low < found.high
    assert found.n == len(problems)


def test_nothing_judged_is_no_accuracy_and_an_empty_problem_is_an_error():
    assert accuracy([]) == Accuracy(None, None, None, 0)
    assert str(accuracy([])) == "no problem judged"
    with pytest.raises(ValueError, match="without samples"):
        accuracy([[True], []])


def test_problems_weigh_the_same_whatever_their_number_of_samples():
    assert accuracy([[True], [False] * 9]).value == 0.5
