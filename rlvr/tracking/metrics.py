"""The metrics of a step and of an evaluation: their names, and how they are computed. Pure.

Names are flat, stable and shared by metrics.jsonl, wandb and the console. A metric that has no value at a step
(no group was judged, say) is left out of that step; shares are 0 to 1.

    step, temperature, weight_version
    reward/mean  reward/std                    over all judged completions of the step
    reward/std_within_group                    mean over groups of the standard deviation inside the group
    reward/<criterion>                         mean score of one criterion
    verdict/<status>_share                     share of the judgements with that status; all statuses, always
    verdict/unjudged_share  verdict/seconds_mean
    groups/trained  groups/dropped  groups/failed        of this step
    groups/dropped/<reason>  groups/failed/<reason>      of this step
    groups/effective_share                     groups whose scores differ, of those that were judged
    groups/total_issued  ..._trained  ..._dropped  ..._failed  ..._in_flight     since the run began
    rollout/completions  rollout/tokens  rollout/tokens_per_s (tokens per second in which an engine works)
    rollout/length_mean  rollout/length_max  rollout/prompt_length_mean          tokens
    rollout/length_ok_mean  rollout/length_not_ok_mean   tokens of completions with and without full marks
    rollout/truncated_share                    completions that hit max_new_tokens
    rollout/distinct_share                     mean over groups: distinct normalised answers / completions
    rollout/logprob_mean                       behaviour logprob per token, nats
    learner/<name>                             as the learner reports it: loss, grad_norm, logprob_gap, kl, lr, ...
    learner/tokens_per_s                       learner/tokens per second in which the learner works
    time/step_s  time/<part>_s                 busy seconds of each part; parts overlap
    time/alone/<part>_s                        the same without overlap: with overhead they add up to time/step_s
    time/overhead_s  time/overhead_share       nothing worked
    category/<category>/reward  .../ok_share  .../completions

    eval/accuracy  eval/accuracy_low  eval/accuracy_high  eval/problems          counted by the final number
    eval/accuracy_strict  ..._strict_low  ..._strict_high                        by the answer criterion
    eval/category/<category>/accuracy  .../accuracy_strict
    eval/unjudged  eval/tokens  eval/seconds  eval/tokens_per_s
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from rlvr.records import Completion, Group, GroupState, Status, Verdict, judged
from rlvr.tracking.accuracy import Accuracy
from rlvr.tracking.step_clock import StepTime

Metrics = dict[str, float | int]
Pair = tuple[Completion, Verdict]


class Evaluation(Protocol):
    """What this package needs of an evaluation's result. `step` is the number of steps made before it."""

    @property
    def step(self) -> int: ...
    @property
    def lenient(self) -> Accuracy: ...
    @property
    def strict(self) -> Accuracy: ...
    @property
    def lenient_by_category(self) -> dict[str, Accuracy]: ...
    @property
    def strict_by_category(self) -> dict[str, Accuracy]: ...
    @property
    def unjudged(self) -> int: ...
    @property
    def tokens(self) -> int: ...
    @property
    def seconds(self) -> float: ...


def step_metrics(
    step: int,
    groups: Sequence[Group],
    learner: Mapping[str, float],
    time: StepTime,
    *,
    counts: Mapping[str, int],
    temperature: float,
    weight_version: int,
) -> Metrics:
    """All metrics of one step, from the groups that ended in it. `counts` are the groups by state of the whole run."""
    metrics: Metrics = {"step": step, "temperature": temperature, "weight_version": weight_version}
    metrics |= _rewards(groups)
    metrics |= _verdicts(groups)
    metrics |= _groups(groups, counts)
    metrics |= _rollout(groups, time.parts.get("rollout", 0.0))
    metrics |= _learner(learner, time.parts.get("learner", 0.0))
    metrics |= _time(time)
    metrics |= _categories(groups)
    return metrics


def evaluation_metrics(result: Evaluation) -> Metrics:
    """All metrics of one evaluation."""
    metrics: Metrics = {"step": result.step, "eval/problems": result.lenient.n}
    for suffix, found in (("", result.lenient), ("_strict", result.strict)):
        if found.value is not None and found.low is not None and found.high is not None:
            metrics[f"eval/accuracy{suffix}"] = found.value
            metrics[f"eval/accuracy{suffix}_low"] = found.low
            metrics[f"eval/accuracy{suffix}_high"] = found.high
    for suffix, by_category in (("", result.lenient_by_category), ("_strict", result.strict_by_category)):
        for category, found in by_category.items():
            if category and found.value is not None:
                metrics[f"eval/category/{slug(category)}/accuracy{suffix}"] = found.value
    metrics |= {"eval/unjudged": result.unjudged, "eval/tokens": result.tokens, "eval/seconds": result.seconds}
    if result.seconds > 0:
        metrics["eval/tokens_per_s"] = result.tokens / result.seconds
    return metrics


def slug(name: str) -> str:
    """A name as one level of a metric's path: slashes and white space would open another one."""
    return re.sub(r"[\s/]+", "_", name.strip()) or "none"


def distinct_share(verdicts: Sequence[Verdict]) -> float:
    """Distinct normalised answers per completion of one group, 1/G to 1. No answer counts as one answer."""
    return len({verdict.normalized for verdict in verdicts}) / len(verdicts)


def _pairs(groups: Sequence[Group]) -> list[Pair]:
    return [pair for group in groups for pair in zip(group.completions, group.verdicts, strict=False)]


def _rewards(groups: Sequence[Group]) -> Metrics:
    by_group = [scores for group in groups if (scores := judged(group.scores))]
    everything = [score for scores in by_group for score in scores]
    if not everything:
        return {}
    metrics: Metrics = {
        "reward/mean": float(np.mean(everything)),
        "reward/std": float(np.std(everything)),
        "reward/std_within_group": float(np.mean([np.std(scores) for scores in by_group])),
    }
    parts: dict[str, list[float]] = {}
    for _, verdict in _pairs(groups):
        for name, part in verdict.parts.items():
            if part.score is not None:
                parts.setdefault(name, []).append(part.score)
    return metrics | {f"reward/{slug(name)}": float(np.mean(scores)) for name, scores in parts.items()}


def _verdicts(groups: Sequence[Group]) -> Metrics:
    verdicts = [verdict for group in groups for verdict in group.verdicts]
    if not verdicts:
        return {}
    found = Counter(verdict.status for verdict in verdicts)
    metrics: Metrics = {f"verdict/{status.value}_share": found[status] / len(verdicts) for status in Status}
    metrics["verdict/unjudged_share"] = sum(verdict.score is None for verdict in verdicts) / len(verdicts)
    metrics["verdict/seconds_mean"] = float(np.mean([verdict.seconds for verdict in verdicts]))
    return metrics


def _groups(groups: Sequence[Group], counts: Mapping[str, int]) -> Metrics:
    metrics: Metrics = {}
    for state in (GroupState.TRAINED, GroupState.DROPPED, GroupState.FAILED):
        ended = [group for group in groups if group.state is state]
        metrics[f"groups/{state.value}"] = len(ended)
        for reason, count in Counter(slug(group.reason) for group in ended if group.reason).items():
            metrics[f"groups/{state.value}/{reason}"] = count
    if by_group := [scores for group in groups if len(scores := judged(group.scores)) > 1]:
        metrics["groups/effective_share"] = sum(len(set(scores)) > 1 for scores in by_group) / len(by_group)
    return metrics | {f"groups/total_{name}": count for name, count in counts.items()}


def _rollout(groups: Sequence[Group], busy_s: float) -> Metrics:
    completions = [completion for group in groups for completion in group.completions]
    lengths = [len(completion.token_ids) for completion in completions]
    tokens = sum(lengths)
    metrics: Metrics = {"rollout/completions": len(completions), "rollout/tokens": tokens}
    if completions:
        metrics["rollout/length_mean"] = tokens / len(completions)
        metrics["rollout/length_max"] = max(lengths)
        metrics["rollout/truncated_share"] = sum(c.truncated for c in completions) / len(completions)
    for suffix, ok in (("ok", True), ("not_ok", False)):
        known = [(c, verdict) for c, verdict in _pairs(groups) if verdict.score is not None]
        chosen = [len(c.token_ids) for c, verdict in known if (verdict.status is Status.OK) is ok]
        if chosen:
            metrics[f"rollout/length_{suffix}_mean"] = sum(chosen) / len(chosen)
    if tokens:
        total = math.fsum(float(np.sum(completion.logprobs, dtype=np.float64)) for completion in completions)
        metrics["rollout/logprob_mean"] = total / tokens
    if busy_s > 0:
        metrics["rollout/tokens_per_s"] = tokens / busy_s
    if prompts := [len(group.prompt.token_ids) for group in groups if group.prompt.token_ids is not None]:
        metrics["rollout/prompt_length_mean"] = sum(prompts) / len(prompts)
    if shares := [distinct_share(group.verdicts) for group in groups if group.verdicts]:
        metrics["rollout/distinct_share"] = sum(shares) / len(shares)
    return metrics


def _learner(stats: Mapping[str, float], busy_s: float) -> Metrics:
    metrics: Metrics = {f"learner/{name}": value for name, value in stats.items()}
    if "tokens" in stats and busy_s > 0:
        metrics["learner/tokens_per_s"] = stats["tokens"] / busy_s
    return metrics


def _time(time: StepTime) -> Metrics:
    metrics: Metrics = {"time/step_s": time.seconds}
    metrics |= {f"time/{part}_s": seconds for part, seconds in time.parts.items()}
    metrics |= {f"time/alone/{part}_s": seconds for part, seconds in time.alone.items()}
    return metrics | {"time/overhead_s": time.overhead_s, "time/overhead_share": time.overhead_share}


def _categories(groups: Sequence[Group]) -> Metrics:
    metrics: Metrics = {}
    by_category: dict[str, list[Pair]] = {}
    for group in groups:
        if group.prompt.category:
            by_category.setdefault(slug(group.prompt.category), []).extend(_pairs([group]))
    for category, pairs in by_category.items():
        metrics[f"category/{category}/completions"] = len(pairs)
        if pairs:
            metrics[f"category/{category}/ok_share"] = _share(pairs, lambda pair: pair[1].status is Status.OK)
        if scores := judged([verdict.score for _, verdict in pairs]):
            metrics[f"category/{category}/reward"] = sum(scores) / len(scores)
    return metrics


def _share(pairs: Sequence[Pair], holds: Callable[[Pair], bool]) -> float:
    return sum(map(holds, pairs)) / len(pairs)
