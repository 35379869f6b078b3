"""The parity probe: after every weight sync, does the engine compute what the learner computes?

A short completion of a fixed prompt is sampled and scored by both sides. It catches a sync that went
wrong before a whole step is generated with it (packed weights, tied embeddings, stale caches).
"""

from __future__ import annotations

from dataclasses import dataclass

from rlvr.driver.policies import mean_gap
from rlvr.driver.protocols import Learner, Rollout
from rlvr.records import Prompt, Sampling


@dataclass(frozen=True)
class ParityProbe:
    """`prompt` is fixed for the run, so that probes of different versions are comparable."""

    prompt: Prompt
    tokens: int = 8

    async def measure(self, rollout: Rollout, learner: Learner, temperature: float) -> float:
        """Mean |engine - learner| logprob over the probe's tokens."""
        sampling = Sampling(temperature=temperature, max_new_tokens=self.tokens, seed=0)
        completions = await rollout.generate(self.prompt, sampling, 1)
        prompt_ids = self.prompt.token_ids or ()
        own = await learner.logprobs(prompt_ids, [c.token_ids for c in completions], temperature)
        return mean_gap([c.logprobs.tolist() for c in completions], [values.tolist() for values in own])
