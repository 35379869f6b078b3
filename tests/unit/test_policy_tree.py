"""Attention over a prefix tree: its layout, and its results and gradients against the definition by a dense mask."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr.policy.attention import dense_tree_attention, tree_attention, tree_attention_forward
from rlvr.policy.tree import Node, TreeLayout


def literal_mask(nodes: list[Node]) -> torch.Tensor:
    owner = [number for number, node in enumerate(nodes) for _ in range(node.length)]

    def ancestors(number: int) -> set[int]:
        parent = nodes[number].parent
        return set() if parent is None else {parent} | ancestors(parent)

    def attends(query: int, key: int) -> bool:
        return owner[key] in ancestors(owner[query]) or (owner[key] == owner[query] and key <= query)

    return torch.tensor([[attends(query, key) for key in range(len(owner))] for query in range(len(owner))])


@st.composite
def trees(draw) -> list[Node]:
    """Depth-first trees: a new node hangs below any node on the path to the last one, or is a new root."""
    nodes: list[Node] = []
    path: list[int] = []
    start = 0
    for number in range(draw(st.integers(1, 7))):
        path = path[: draw(st.integers(0, len(path)))]
        length = draw(st.one_of(st.integers(1, 6), st.integers(62, 70)))
        nodes.append(Node(start, length, path[-1] if path else None))
        path = [*path, number]
        start += length
    return nodes


@settings(max_examples=25)
@given(trees())
def test_the_layout_says_who_attends_to_whom(nodes):
    assert torch.equal(TreeLayout.build(nodes).dense_mask(), literal_mask(nodes))


@settings(max_examples=25)
@given(trees(), st.sampled_from([(6, 2), (3, 3), (4, 1)]))
def test_attention_by_node_equals_the_dense_mask_with_gradients(nodes, heads):
    layout = TreeLayout.build(nodes)
    generator = torch.Generator().manual_seed(0)

    def random(count: int) -> torch.Tensor:
        return torch.randn(count, layout.tokens, 8, generator=generator, dtype=torch.float64, requires_grad=True)

    query, key, value = random(heads[0]), random(heads[1]), random(heads[1])
    weights = torch.randn(layout.tokens, heads[0], 8, generator=generator, dtype=torch.float64)
    results = []
    for function in (tree_attention, dense_tree_attention):
        output = function(query, key, value, layout, 0.3)
        results.append((output, *torch.autograd.grad((output * weights).sum(), (query, key, value))))
    for fast, defined in zip(*results, strict=True):
        torch.testing.assert_close(fast, defined, rtol=1e-9, atol=1e-9)


def test_bfloat16_stays_within_its_rounding():
    layout = TreeLayout.build([Node(0, 40, None), Node(40, 9, 0), Node(49, 12, 0)])
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(n, 61, 16, generator=generator).bfloat16() for n in (4, 2, 2))
    fast = tree_attention(query, key, value, layout, 0.25).float()
    exact = dense_tree_attention(query.float(), key.float(), value.float(), layout, 0.25)
    assert (fast - exact).abs().max() < 0.03


@pytest.mark.parametrize(
    "nodes", [[Node(1, 2, None)], [Node(0, 2, None), Node(3, 1, 0)], [Node(0, 2, 1)], [Node(0, 0, None)]]
)
def test_nodes_that_do_not_cover_the_row_are_refused(nodes):
    with pytest.raises(ValueError, match="does not continue"):
        TreeLayout.build(nodes)


@pytest.mark.parametrize("asked", [{"sliding_window": 4}, {"softcap": 30.0}, {"dropout": 0.1}])
def test_attention_that_a_tree_does_not_have_is_refused(asked):
    tensor = torch.zeros(1, 1, 2, 8)
    layout = TreeLayout.build([Node(0, 2, None)])
    with pytest.raises(ValueError, match="does not have"):
        tree_attention_forward(torch.nn.Module(), tensor, tensor, tensor, None, tree_layout=layout, **asked)


def test_a_model_that_drops_the_layout_is_refused():
    tensor = torch.zeros(1, 1, 2, 8)
    with pytest.raises(ValueError, match="did not pass"):
        tree_attention_forward(torch.nn.Module(), tensor, tensor, tensor, None)
