"""Advantages against literal formulas, and where floating point would betray them."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.grpo.advantages import STD_EPSILON, batch_scaled, group_advantages, has_no_variance

finite_scores = st.lists(st.floats(0, 1, width=32), min_size=2, max_size=16)


@given(finite_scores)
def test_group_mean_and_std_follow_the_formula(scores):
    if len(set(scores)) < 2:
        return
    mean, std = statistics.fmean(scores), statistics.stdev(scores)
    expected = [(score - mean) / (std + STD_EPSILON) for score in scores]
    advantages, judged = group_advantages(scores)
    assert advantages.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert judged.all()


@given(finite_scores)
def test_dr_grpo_only_subtracts_the_mean(scores):
    mean = statistics.fmean(scores)
    advantages, _ = group_advantages(scores, scale="none")
    assert advantages.tolist() == pytest.approx([score - mean for score in scores], abs=1e-6)


def test_without_baseline_and_scale_the_advantage_is_the_score():
    advantages, _ = group_advantages([0.25, 1.0, 0.0], baseline="none", scale="none")
    assert advantages.tolist() == [0.25, 1.0, 0.0]


def test_an_unjudged_completion_takes_part_in_nothing():
    with_none, judged = group_advantages([1.0, None, 0.0, 0.0])
    without, _ = group_advantages([1.0, 0.0, 0.0])
    assert with_none[[0, 2, 3]].tolist() == without.tolist()
    assert with_none[1] == 0.0
    assert judged.tolist() == [True, False, True, True]


@given(st.floats(0, 1), st.integers(2, 16), st.sampled_from(["group_std", "none"]))
def test_equal_scores_give_exactly_zero(score, count, scale):
    advantages, _ = group_advantages([score] * count, scale=scale)
    assert advantages.tolist() == [0.0] * count


def test_one_loser_among_seven_equal_scores_is_told_apart():
    advantages, _ = group_advantages([0.7] * 7 + [0.0])
    assert advantages[:7].tolist() == pytest.approx([1 / math.sqrt(8)] * 7, rel=1e-4)
    assert advantages[7].item() == pytest.approx(-7 / math.sqrt(8), rel=1e-4)


def test_a_spread_that_only_rounding_made_is_not_blown_up():
    assert 0.1 + 0.2 != 0.3
    advantages, _ = group_advantages([0.3] * 7 + [0.1 + 0.2])
    assert advantages.abs().max() < 1e-6


@pytest.mark.parametrize("scores", [[], [None, None], [1.0, None]])
def test_too_few_judged_completions_carry_no_advantage(scores):
    advantages, _ = group_advantages(scores)
    assert advantages.tolist() == [0.0] * len(scores)
    assert has_no_variance(scores)


def test_variance_is_decided_on_the_judged_scores():
    assert has_no_variance([0.5, None, 0.5])
    assert not has_no_variance([0.5, None, 0.5000001])


@pytest.mark.parametrize("arguments", [{"baseline": "median"}, {"scale": "range"}])
def test_an_unknown_choice_is_refused(arguments):
    with pytest.raises(ValueError, match="unknown"):
        group_advantages([0.0, 1.0], **arguments)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_score_that_is_no_number_is_refused(bad):
    with pytest.raises(ValueError, match="finite"):
        group_advantages([0.0, bad])


@given(finite_scores)
def test_leave_one_out_subtracts_the_mean_of_the_others(scores):
    expected = [score - statistics.fmean(scores[:index] + scores[index + 1 :]) for index, score in enumerate(scores)]
    advantages, _ = group_advantages(scores, baseline="leave_one_out", scale="none")
    assert advantages.tolist() == pytest.approx(expected, abs=1e-6)


def test_the_batch_s_deviation_is_taken_over_all_judged_completions_of_the_step():
    groups = [[0.5, -0.5], [None, 0.25, -0.25]]
    deviation = statistics.stdev([0.5, -0.5, 0.25, -0.25]) + STD_EPSILON
    assert batch_scaled(groups)[0] == pytest.approx([0.5 / deviation, -0.5 / deviation])
    assert batch_scaled(groups)[1][0] is None
    assert batch_scaled(groups)[1][1:] == pytest.approx([0.25 / deviation, -0.25 / deviation])
    assert batch_scaled([[1.0, None]]) == [[1.0, None]]
