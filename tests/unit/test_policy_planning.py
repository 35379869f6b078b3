"""Micro-batches: nothing lost, nothing over budget, ranks in step; and what a packed batch names."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlvr.policy.packing import pack_plain, pack_shared
from rlvr.policy.planning import MIN_COMMON_PREFIX, common_prefix_length, plan

groups = st.lists(
    st.tuples(st.integers(1, 40), st.lists(st.integers(0, 30), min_size=1, max_size=8)), min_size=1, max_size=6
)


@given(groups, st.integers(10, 200), st.integers(1, 3), st.booleans())
def test_every_completion_is_planned_once_within_budget_and_ranks_stay_in_step(shapes, budget, ranks, share):
    prompts = [[number] * length for number, (length, _) in enumerate(shapes)]
    lengths = [completions for _, completions in shapes]
    result = plan(prompts, lengths, budget=budget, ranks=ranks, share_prefix=share)
    assert len(result.ranks) == ranks
    assert len({len(batches) for batches in result.ranks}) == 1
    seen = []
    for batches in result.ranks:
        for batch in batches:
            seen += [(bundle.group, index) for bundle in batch for index in bundle.completions]
            alone = len(batch) == 1 and len(batch[0].completions) == 1
            assert alone or sum(bundle.tokens for bundle in batch) <= budget
    assert sorted(seen) == [(g, i) for g, own in enumerate(lengths) for i, length in enumerate(own) if length]


def test_a_group_larger_than_the_budget_is_split_by_completions_and_counted():
    result = plan([[1] * 50], [[31] * 4], budget=120, ranks=1, share_prefix=True)
    assert [sum(b.tokens for b in batch) for batch in result.ranks[0]] == [110, 110]
    assert result.split_groups == 1


def test_one_group_is_shared_among_ranks_rather_than_leaving_one_idle():
    result = plan([[1] * 5], [[4] * 4], budget=1000, ranks=2, share_prefix=True)
    assert [batches[0][0].completions for batches in result.ranks] == [(0, 1), (2, 3)]


def test_a_prefix_common_to_all_prompts_is_found_and_leaves_each_its_own_token():
    shared = list(range(100, 140))
    assert common_prefix_length([[*shared, 1, 2], [*shared, 3]]) == 40
    assert common_prefix_length([shared, [*shared, 3]]) == 39
    assert common_prefix_length([shared, shared]) == 39
    assert common_prefix_length([[*shared, 1]]) == 0
    assert common_prefix_length([[*range(MIN_COMMON_PREFIX - 1), 77], [*range(MIN_COMMON_PREFIX - 1), 88]]) == 0


def test_shared_and_plain_layouts_name_the_same_predictions():
    items = [([1, 2, 3], [[4, 5, 6], [7]]), ([1, 2, 9, 9], [[8, 8]])]
    shared, plain = pack_shared(items, common_prefix=2), pack_plain(items)
    assert shared.targets.tolist() == plain.targets.tolist() == [4, 5, 6, 7, 8, 8]
    # The token that stands where a prediction is made, and its position, are the same in both.
    for packed in (shared, plain):
        assert packed.input_ids.flatten()[packed.predictors].tolist() == [3, 4, 5, 3, 9, 8]
        assert packed.position_ids.flatten()[packed.predictors].tolist() == [2, 3, 4, 2, 3, 4]
    assert shared.input_ids.tolist() == [[1, 2, 3, 4, 5, 9, 9, 8]]
    assert shared.computed_tokens == 8
    assert plain.computed_tokens == 3 * 5
    assert plain.attention_mask is not None
    assert plain.attention_mask.sum(1).tolist() == [5, 3, 5]


def test_no_completion_sees_another_one():
    packed = pack_shared([([1, 2], [[3, 4, 5], [6, 7, 8]])])
    assert packed.layout is not None
    mask = packed.layout.dense_mask()
    ids = packed.input_ids[0]
    first, second = torch.isin(ids, torch.tensor([3, 4])), torch.isin(ids, torch.tensor([6, 7]))
    assert not mask[first][:, second].any()
    assert not mask[second][:, first].any()


def test_ranks_and_budget_of_an_empty_plan():
    assert plan([[1, 2]], [[0, 0]], budget=10, ranks=2, share_prefix=True).ranks == ((), ())


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_work_is_balanced_over_ranks(ranks):
    result = plan([[g] * 10 for g in range(12)], [[11] * 4] * 12, budget=120, ranks=ranks, share_prefix=True)
    loads = [sum(b.tokens for batch in batches for b in batch) for batches in result.ranks]
    assert max(loads) == min(loads)
