"""Each preset against a literal transcription of its paper's equation; shaping of scores; what presets set."""

from __future__ import annotations

import random
import typing

import numpy as np
import pytest
import torch

from rlvr.compose import compose
from rlvr.config import AlgorithmConfig, KLConfig, OverlongConfig
from rlvr.errors import ConfigError
from rlvr.grpo.aggregation import normaliser, token_weights
from rlvr.grpo.credit import group_credit, needs_whole_step, overlong_penalty, step_credit
from rlvr.grpo.loss import needs_whole_completions, token_loss
from rlvr.records import Completion, FinishReason, Group, Part, Prompt, Status, Verdict

PRESETS = [name for name in typing.get_args(typing.get_type_hints(AlgorithmConfig)["preset"]) if name != "none"]
MAX_NEW_TOKENS = 9


def make_group(seed: int, scores: list[float | None], lengths: list[int]) -> Group:
    source = random.Random(seed)
    group = Group(id=f"g{seed}", prompt=Prompt(id="p", reference="", text="?", token_ids=(1,)), step=0)
    group.reference_logprobs = []
    for score, length in zip(scores, lengths, strict=True):
        behaviour = np.array([-2 + source.gauss(0, 0.5) for _ in range(length)], np.float32)
        reason = FinishReason.LENGTH if length == MAX_NEW_TOKENS else FinishReason.STOP
        group.completions.append(Completion(tuple(range(length)), behaviour, "", reason, ((0, length),)))
        group.reference_logprobs.append((behaviour + source.gauss(0, 0.3)).astype(np.float32))
        group.verdicts.append(Verdict(score, Status.OK, {}))
    return group


@pytest.fixture
def groups() -> list[Group]:
    return [make_group(1, [1.0, 0.0, 0.5, 0.0], [3, 9, 1, 5]), make_group(2, [0.0, 1.0, 1.0, 0.25], [2, 2, 7, 4])]


@pytest.fixture
def policy(groups) -> list[torch.Tensor]:
    """The learner's logprobs of every completion, some ratios far enough from 1 to be clipped."""
    source = torch.Generator().manual_seed(3)
    everything = [completion for group in groups for completion in group.completions]
    return [
        (torch.from_numpy(c.logprobs) + 0.4 * torch.randn(len(c.logprobs), generator=source)).requires_grad_()
        for c in everything
    ]


def algorithm_of(preset: str, *overrides: str) -> AlgorithmConfig:
    return compose("quickstart", [f"algorithm.preset={preset}", *overrides]).config.algorithm


def composed_loss(groups: list[Group], policy: list[torch.Tensor], algorithm: AlgorithmConfig) -> torch.Tensor:
    for group in groups:
        group.advantages = group_credit(group, algorithm, MAX_NEW_TOKENS)
    step_credit(groups, algorithm)
    completions = [completion for group in groups for completion in group.completions]
    references = [reference for group in groups for reference in group.reference_logprobs]
    lengths = [len(completion.token_ids) for completion in completions]
    advantages = torch.tensor([advantage for group in groups for advantage in group.advantages])
    result = token_loss(
        torch.cat(policy),
        torch.from_numpy(np.concatenate([completion.logprobs for completion in completions])),
        advantages.repeat_interleave(torch.tensor(lengths)),
        algorithm,
        lengths=lengths,
        reference=torch.from_numpy(np.concatenate(references)),
    )
    weights = token_weights(lengths, algorithm.aggregation, max_new_tokens=MAX_NEW_TOKENS)
    divisor = normaliser(algorithm.aggregation, tokens=sum(lengths), sequences=len(lengths))
    return (result.loss * weights).sum() / divisor


def rows(groups: list[Group], policy: list[torch.Tensor]):
    """(scores of the group, index in it, policy, behaviour, reference logprobs) of each completion."""
    numbers = iter(policy)
    for group in groups:
        scores = torch.tensor(group.scores, dtype=torch.float64)
        for index, completion in enumerate(group.completions):
            yield (
                scores, index, next(numbers), torch.from_numpy(completion.logprobs),
                torch.from_numpy(group.reference_logprobs[index]),
            )  # fmt: skip


def clip(ratio, advantage, low, high):
    return torch.min(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)


def grpo(groups, policy):
    total = 0.0
    for scores, i, new, old, ref in rows(groups, policy):
        advantage = ((scores[i] - scores.mean()) / scores.std()).float()
        kl = (ref - new).exp() - (ref - new) - 1
        total += (clip((new - old).exp(), advantage, 0.2, 0.2) - 0.04 * kl).mean() / len(policy)
    return -total


def dr_grpo(groups, policy):
    total = 0.0
    for scores, i, new, old, _ in rows(groups, policy):
        total += clip((new - old).exp(), (scores[i] - scores.mean()).float(), 0.2, 0.2).sum()
    return -total / (MAX_NEW_TOKENS * len(policy))


def dapo(groups, policy):
    total = 0.0
    for scores, i, new, old, _ in rows(groups, policy):
        advantage = ((scores[i] - scores.mean()) / scores.std()).float()
        total += clip((new - old).exp(), advantage, 0.2, 0.28).sum()
    return -total / sum(len(part) for part in policy)


def gspo(groups, policy):
    total = 0.0
    for scores, i, new, old, _ in rows(groups, policy):
        advantage = ((scores[i] - scores.mean()) / scores.std()).float()
        total += clip((new.sum() - old.sum()).div(len(new)).exp(), advantage, 3e-4, 4e-4)
    return -total / len(policy)


def cispo(groups, policy):
    total = 0.0
    for scores, i, new, old, _ in rows(groups, policy):
        advantage = ((scores[i] - scores.mean()) / scores.std()).float()
        total += ((new - old).exp().clamp(max=5.0).detach() * advantage * new).sum()
    return -total / sum(len(part) for part in policy)


def rloo(groups, policy):
    total = 0.0
    kl = [(old - ref).sum() for _, _, _, old, ref in rows(groups, policy)]
    for number, (scores, i, new, old, _) in enumerate(rows(groups, policy)):
        first = number - i
        shaped = [scores[j] - 0.05 * kl[first + j].double() for j in range(len(scores))]
        others = [value for j, value in enumerate(shaped) if j != i]
        advantage = (shaped[i] - sum(others) / len(others)).float()
        total += clip((new - old).exp(), advantage, 0.2, 0.2).sum()
    return -total / (MAX_NEW_TOKENS * len(policy))


def reinforce_pp_baseline(groups, policy):
    raw = torch.stack([scores[i] - scores.mean() for scores, i, *_ in rows(groups, policy)])
    normal = ((raw - raw.mean()) / raw.std()).float()
    total = 0.0
    for advantage, (_, _, new, old, ref) in zip(normal, rows(groups, policy), strict=True):
        total += (clip((new - old).exp(), advantage, 0.2, 0.2) - 0.001 * 0.5 * (new - ref) ** 2).sum()
    return -total / sum(len(part) for part in policy)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_its_paper_s_equation(preset, groups, policy):
    literal = globals()[preset](groups, policy)
    want = torch.autograd.grad(literal, policy)
    loss = composed_loss(groups, policy, algorithm_of(preset))
    got = torch.autograd.grad(loss, policy)
    assert loss.item() == pytest.approx(literal.item(), rel=1e-4, abs=1e-6)
    torch.testing.assert_close(torch.cat(got), torch.cat(want), rtol=1e-4, atol=1e-6)
    assert torch.cat(want).abs().max() > 1e-3


def test_what_follows_a_preset_overrides_it_wherever_the_preset_stands(tmp_path):
    (tmp_path / "mine.yaml").write_text("extends: quickstart\nalgorithm:\n  clip_high: 0.5\n  preset: dapo\n")
    algorithm = compose(str(tmp_path / "mine.yaml")).config.algorithm
    assert (algorithm.preset, algorithm.clip_high, algorithm.max_replacements) == ("dapo", 0.5, 64)
    assert algorithm_of("dapo", "algorithm.clip_high=0.3").clip_high == 0.3


def test_a_preset_on_the_command_line_replaces_what_a_file_said(tmp_path):
    algorithm = compose("quickstart_kl", ["algorithm.preset=dr_grpo"]).config.algorithm
    assert (algorithm.kl.coef, algorithm.scale) == (0, "none")


def test_an_unknown_preset_is_refused():
    with pytest.raises(ConfigError, match=r"algorithm\.preset"):
        algorithm_of("grop")


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("algorithm.dual_clip=0.5", "above 1"),
        ("algorithm.correction={kind: masked, low: 3}", "must be below"),
        ("algorithm.overlong.margin_tokens=1000", "more than max_new_tokens"),
        ("algorithm.correction.low=0.4", "has no effect"),
        ("algorithm.kl.estimator=k2", "has no effect"),
        ("algorithm.kl={coef: 0.1, place: reward, estimator: k2}", "has no effect"),
        ("algorithm={objective: cispo, dual_clip: 3}", "has no effect"),
    ],
)
def test_choices_that_make_no_sense_together_are_refused(override, complaint):
    with pytest.raises(ConfigError, match=complaint):
        compose("quickstart", [override])


def test_batch_scale_cannot_be_learned_while_groups_arrive():
    with pytest.raises(ConfigError, match="batch_std"):
        compose("quickstart", ["algorithm.scale=batch_std", "learner.overlap=on"])
    assert needs_whole_step(AlgorithmConfig(scale="batch_std"))
    assert not needs_whole_step(AlgorithmConfig())


def test_the_length_penalty_is_dapo_s_equation_13():
    lengths = (0, 6, 7, 8, 9)
    assert [overlong_penalty(n, max_new_tokens=9, margin=3) for n in lengths] == pytest.approx([0, 0, 1 / 3, 2 / 3, 1])
    assert overlong_penalty(9, max_new_tokens=9, margin=0) == 0


def test_the_length_penalty_lowers_the_score_before_the_baseline(groups):
    algorithm = AlgorithmConfig(scale="none", overlong=OverlongConfig(margin_tokens=4, penalty=0.5))
    shaped = [1.0, 0.0 - 0.5, 0.5, 0.0]
    mean = sum(shaped) / 4
    assert group_credit(groups[0], algorithm, MAX_NEW_TOKENS) == pytest.approx([s - mean for s in shaped])


def test_a_truncated_completion_is_masked_after_the_baseline_is_taken(groups):
    plain = group_credit(groups[0], AlgorithmConfig(), MAX_NEW_TOKENS)
    masked = group_credit(groups[0], AlgorithmConfig(mask_truncated=True), MAX_NEW_TOKENS)
    assert masked == [plain[0], None, plain[2], plain[3]]


def test_the_kl_penalty_needs_a_reference(groups):
    groups[0].reference_logprobs = None
    with pytest.raises(ValueError, match="reference"):
        group_credit(groups[0], AlgorithmConfig(kl=KLConfig(coef=0.1, place="reward")), MAX_NEW_TOKENS)


def test_separate_criteria_keep_a_rare_one_from_being_drowned():
    group = make_group(4, [0.0] * 4, [2] * 4)
    answer, form = [1.0, 0.0, 0.0, 0.0], [0.1, 0.1, 0.2, 0.1]
    group.verdicts = [
        Verdict(a + f, Status.OK, {"answer": Part(a, 1.0, Status.OK), "form": Part(f, 0.5, Status.OK)})
        for a, f in zip(answer, form, strict=True)
    ]
    # Both criteria have one winner of four: each gives it 1.5 and the others -0.5, whatever the size of the scores.
    expected = [1.5 - 0.25, -0.5 - 0.25, -0.5 + 0.75, -0.5 - 0.25]
    separate = group_credit(group, AlgorithmConfig(criteria="separate"), MAX_NEW_TOKENS)
    assert separate == pytest.approx(expected, rel=1e-3)
    group.verdicts[3].score = None
    assert group_credit(group, AlgorithmConfig(criteria="separate"), MAX_NEW_TOKENS)[3] is None


def test_only_losses_over_sequences_need_whole_completions():
    assert [name for name in PRESETS if needs_whole_completions(algorithm_of(name))] == ["gspo"]
