"""Groups for learner tests, and the same training step written out literally with plain Transformers and PyTorch."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from rlvr.config import Config
from rlvr.grpo.credit import group_credit, step_credit
from rlvr.records import Completion, FinishReason, Group, Prompt, Status, Verdict

LENGTHS = ((4, 1, 6), (2, 9, 3), (5, 5, 2), (12, 1, 7))
VOCABULARY = 300


def make_config(**learner: object) -> Config:
    """Defaults for tests: micro-batches so small that a step needs several, one thread."""
    config = Config()
    config.model.path = "unused"
    config.learner.tokens_per_microbatch = 64
    config.learner.logits_chunk = 5
    config.learner.threads = 1
    config.learner.lr = 1e-3
    config.learner.max_grad_norm = 1e6
    config.learner.device = "cpu"
    for key, value in learner.items():
        setattr(config.learner, key, value)
    return config


def make_groups(seed: int = 0, *, scale: float = 1.0, prefix: int = 0) -> list[Group]:
    """Four groups of three completions; `prefix` leading tokens are common to all prompts."""
    source = random.Random(seed)
    common = [source.randrange(3, VOCABULARY) for _ in range(prefix)]
    groups = []
    for number, lengths in enumerate(LENGTHS):
        own = tuple(common + [source.randrange(3, VOCABULARY) for _ in range(8 + number)])
        group = Group(id=f"g{number}", prompt=Prompt(id=f"p{number}", reference="", text="?", token_ids=own), step=0)
        for length in lengths:
            ids = tuple(source.randrange(3, VOCABULARY) for _ in range(length))
            # Around what a random model gives, so that some ratios are clipped on either side and some are not.
            behaviour = np.array([-5.7 + source.gauss(0, 0.3) for _ in ids], dtype=np.float32)
            group.completions.append(Completion(ids, behaviour, "", FinishReason.STOP, ((0, length),)))
            group.verdicts.append(Verdict(score=scale * source.random(), status=Status.OK, parts={}))
        groups.append(group)
    return groups


def ready(groups: list[Group], config: Config) -> list[Group]:
    """The same groups with the advantages that the driver gives them."""
    for group in groups:
        group.advantages = group_credit(group, config.algorithm, config.max_new_tokens)
    step_credit(groups, config.algorithm)
    return groups


@dataclass
class Literal:
    """A plain model under plain AdamW."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    max_grad_norm: float

    def loss(self, config: Config, groups: list[Group], temperature: float) -> torch.Tensor:
        """The step's loss, one sequence at a time, all logits at once."""
        algorithm = config.algorithm
        sums, counts = [], []
        for group in groups:
            scores = torch.tensor([s for s in group.scores if s is not None], dtype=torch.float64)
            for index, completion in enumerate(group.completions):
                if group.scores[index] is None:
                    continue
                advantage = group.scores[index]
                if algorithm.baseline == "group_mean":
                    advantage -= scores.mean().item()
                if algorithm.scale == "group_std":
                    advantage /= scores.std().item() + 1e-6
                logprobs = self.logprobs(group.prompt.token_ids, completion.token_ids, temperature)
                ratio = (logprobs - torch.from_numpy(completion.logprobs)).exp()
                clipped = ratio.clamp(1 - algorithm.clip_low, 1 + algorithm.clip_high)
                loss = -torch.minimum(ratio * advantage, clipped * advantage)
                if algorithm.kl.coef:
                    difference = torch.from_numpy(group.reference_logprobs[index]) - logprobs
                    loss = loss + algorithm.kl.coef * (difference.exp() - difference - 1)
                sums.append(loss.sum())
                counts.append(len(completion.token_ids))
        if algorithm.aggregation == "token":
            return torch.stack(sums).sum() / sum(counts)
        if algorithm.aggregation == "sequence":
            return torch.stack([total / count for total, count in zip(sums, counts, strict=True)]).mean()
        return torch.stack(sums).mean() / config.max_new_tokens

    def logprobs(self, prompt, completion, temperature: float) -> torch.Tensor:
        """Logprobs of one completion."""
        logits = self.model(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1].float()
        return (logits / temperature).log_softmax(-1).gather(1, torch.tensor(completion)[:, None])[:, 0]

    def step(self, config: Config, groups: list[Group], temperature: float) -> tuple[float, float]:
        """(loss, norm of the gradient before clipping); the weights are updated."""
        loss = self.loss(config, groups, temperature)
        self.optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_grad_norm)
        self.optimizer.step()
        return float(loss), float(norm)


def literal(folder: Path, config: Config) -> Literal:
    """The literal counterpart of a learner with `config` on the model in `folder`."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    learner = config.learner
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=learner.lr,
        betas=(learner.beta1, learner.beta2),
        weight_decay=learner.weight_decay,
    )
    return Literal(model, optimizer, learner.max_grad_norm)
