"""Attention over a prefix tree, by node instead of by a dense mask; exact, with gradients.

Every node attends causally to itself (nodes of similar length in one batch), and the descendants of a node attend to
all of it (one unmasked product per node that has descendants). The partial results are merged by their log-sum-exps,
as in blockwise attention (Liu et al. 2023, arXiv:2310.01889). So the work is that of the pairs that attend, and no
[T, T] matrix ever exists. The gradient of each part, given the *merged* output and log-sum-exp, is that part's share
of the exact gradient, because softmax's gradient needs nothing else of the other parts.

On CPU the parts run on PyTorch's flash kernels. Elsewhere a dense boolean mask goes through
`scaled_dot_product_attention`: the same result, without the saving.
Must not know what the nodes mean, nor which model calls it.
"""

from __future__ import annotations

from typing import Any

import torch

from rlvr.policy.tree import TreeLayout

#: Name under which the function is registered with Transformers.
NAME = "rlvr_tree"

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def register() -> None:
    """Make the function known to Transformers. Doing it again changes nothing."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, tree_attention_forward)


def tree_attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    tree_layout: TreeLayout | None = None,
    **unsupported: Any,
) -> tuple[torch.Tensor, None]:
    """Transformers' attention signature; the layout arrives as an extra keyword argument of the model's forward.

    query [1, H, T, d]; key, value [1, H_kv, T, d] -> [1, T, H, d].
    Raises ValueError for what it cannot compute exactly: no layout, dropout, a sliding window, sinks, soft caps.
    """
    if tree_layout is None:
        raise ValueError("the model did not pass tree_layout on to its attention")
    altered = [name for name in ("sliding_window", "softcap", "s_aux", "position_bias") if unsupported.get(name)]
    if dropout or attention_mask is not None or altered:
        raise ValueError(f"attention asks for {', '.join(altered) or 'dropout or a mask'}, which a tree does not have")
    scale = float(scaling) if scaling is not None else query.shape[-1] ** -0.5
    return tree_attention(query[0], key[0], value[0], tree_layout, scale).unsqueeze(0), None


def tree_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layout: TreeLayout, scale: float
) -> torch.Tensor:
    """query [H, T, d], key and value [H_kv, T, d] with H a multiple of H_kv -> [T, H, d]."""
    if query.device.type == "cpu" and key.shape[-1] == value.shape[-1]:
        return _TreeAttention.apply(query, key, value, layout, scale)
    return dense_tree_attention(query, key, value, layout, scale)


def dense_tree_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layout: TreeLayout, scale: float
) -> torch.Tensor:
    """The same by its definition, with a [T, T] mask."""
    output = torch.nn.functional.scaled_dot_product_attention(
        query.unsqueeze(0),
        key.unsqueeze(0),
        value.unsqueeze(0),
        attn_mask=layout.dense_mask(),
        scale=scale,
        enable_gqa=True,
    )
    return output[0].transpose(0, 1)


class _TreeAttention(torch.autograd.Function):
    """Nodes to themselves, descendants to their ancestors, merged. Tensors are laid out [T, H, d] inside."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layout: TreeLayout, scale: float
    ) -> torch.Tensor:
        heads, kv_heads = query.shape[0], key.shape[0]
        outputs, sums = [], []
        for block in layout.blocks:
            parts = (_gather(query, block.index), _gather(key, block.index, heads), _gather(value, block.index, heads))
            output, log_sum = _flash(*parts, 0.0, True, scale=scale)
            outputs.append(output.transpose(1, 2).flatten(0, 1))
            sums.append(log_sum.transpose(1, 2).flatten(0, 1))
        merged = torch.cat(outputs).index_select(0, layout.inverse)
        merged_sum = torch.cat(sums).index_select(0, layout.inverse)
        for edge in layout.edges:
            queries, keys = slice(edge.query_start, edge.query_end), slice(edge.key_start, edge.key_end)
            output, log_sum = _flash(
                _by_share(query, queries, kv_heads),
                _for_all_shares(key, keys, heads),
                _for_all_shares(value, keys, heads),
                0.0,
                False,
                scale=scale,
            )
            output, log_sum = _from_shares(output), log_sum.permute(2, 1, 0).flatten(1)
            own, own_sum = merged[queries], merged_sum[queries]
            total = torch.logaddexp(own_sum, log_sum)
            own.mul_(torch.exp(own_sum - total).unsqueeze(-1)).add_(output * torch.exp(log_sum - total).unsqueeze(-1))
            own_sum.copy_(total)
        ctx.save_for_backward(query, key, value, merged, merged_sum)
        ctx.layout, ctx.scale = layout, scale
        return merged

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        query, key, value, merged, merged_sum = ctx.saved_tensors
        layout, scale = ctx.layout, ctx.scale
        heads, kv_heads = query.shape[0], key.shape[0]
        by_head = [tensor.transpose(0, 1) for tensor in (grad, merged)]
        log_sum_by_head = merged_sum.transpose(0, 1)
        parts: list[list[torch.Tensor]] = [[], [], []]
        for block in layout.blocks:
            grad_block, merged_block = (_gather(tensor, block.index) for tensor in by_head)
            if block.padding is not None:
                # Padding repeats a real token; without this its gradient would be counted again.
                grad_block.masked_fill_(block.padding[:, None, :, None], 0)
            grads = _flash_backward(
                grad_block,
                _gather(query, block.index),
                _gather(key, block.index, heads),
                _gather(value, block.index, heads),
                merged_block,
                _gather(log_sum_by_head, block.index),
                0.0,
                True,
                scale=scale,
            )
            parts[0].append(grads[0].transpose(1, 2).flatten(0, 1))
            for part, tensor in zip(parts[1:], grads[1:], strict=True):
                nodes, _, width, size = tensor.shape
                shares = tensor.view(nodes, kv_heads, heads // kv_heads, width, size).sum(2)
                part.append(shares.transpose(1, 2).flatten(0, 1))
        grad_query, grad_key, grad_value = (torch.cat(part).index_select(0, layout.inverse) for part in parts)
        for edge in layout.edges:
            queries, keys = slice(edge.query_start, edge.query_end), slice(edge.key_start, edge.key_end)
            log_sum = log_sum_by_head[:, queries].unflatten(0, (kv_heads, heads // kv_heads)).transpose(0, 1)
            grads = _flash_backward(
                _by_share(by_head[0], queries, kv_heads),
                _by_share(query, queries, kv_heads),
                _for_all_shares(key, keys, heads),
                _for_all_shares(value, keys, heads),
                _by_share(by_head[1], queries, kv_heads),
                log_sum.contiguous(),
                0.0,
                False,
                scale=scale,
            )
            grad_query[queries] += _from_shares(grads[0])
            grad_key[keys] += grads[1].sum(0).transpose(0, 1)
            grad_value[keys] += grads[2].sum(0).transpose(0, 1)
        return grad_query.transpose(0, 1), grad_key.transpose(0, 1), grad_value.transpose(0, 1), None, None


def _gather(tensor: torch.Tensor, index: torch.Tensor, heads: int | None = None) -> torch.Tensor:
    """[H, T, ...] at index [nodes, L] -> [nodes, heads, L, ...], each key-value head repeated for its query heads."""
    own = tensor.shape[0]
    heads = heads or own
    head = torch.arange(own, device=tensor.device).repeat_interleave(heads // own)
    return tensor[head[None, :, None], index[:, None, :]]


# A key-value head serves H / H_kv query heads, its shares. Along an edge the shares are put into the batch dimension:
# [share, H_kv, n, d], so keys and values need no copy.


def _by_share(tensor: torch.Tensor, tokens: slice, kv_heads: int) -> torch.Tensor:
    """[H, T, d] -> [share, H_kv, n, d], without a copy."""
    return tensor[:, tokens].unflatten(0, (kv_heads, -1)).transpose(0, 1)


def _for_all_shares(tensor: torch.Tensor, tokens: slice, heads: int) -> torch.Tensor:
    """[H_kv, T, d] -> [share, H_kv, n, d], without a copy."""
    return tensor[:, tokens].unsqueeze(0).expand(heads // tensor.shape[0], -1, -1, -1)


def _from_shares(tensor: torch.Tensor) -> torch.Tensor:
    """[share, H_kv, n, d] -> [n, H, d]."""
    return tensor.permute(2, 1, 0, 3).flatten(1, 2)
