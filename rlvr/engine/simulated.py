"""A SIMULATED engine: no model, no weights, only latencies and seeded token ids, behind the same protocol.

For tests of the driver and for scaling studies at thousands of concurrent groups. What it writes is not
language and what it reports as logprobs is no model's opinion: never compare them with a learner's. It says
so in its name, its log and `simulated`. Must not import torch, vLLM or a tokenizer.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rlvr.errors import DataError, InfrastructureError, UserError
from rlvr.records import Completion, FinishReason, Sampling, WeightUpdate

_log = logging.getLogger(__name__)

#: Token ids of the prompt and a source of chance -> the text of an answer.
Answer = Callable[[Sequence[int], random.Random], str]
Encode = Callable[[str], Sequence[int]]
Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True)
class Latency:
    """How long things take, in seconds, and how long answers are, in tokens."""

    seconds_per_token: float = 0.0
    """Of one decoding step, whatever the number of sequences in it."""
    prefill_seconds_per_token: float = 0.0
    """Of each prompt token, once per group."""
    sync_seconds: float = 0.0
    """Of one weight update."""
    slots: int = 1 << 30
    """Groups that make progress at the same time; more of them wait."""
    length_median: float = 24.0
    """Median of the log-normal distribution of answer lengths."""
    length_sigma: float = 0.8
    """Its shape: 0 makes all answers equally long; 0.8 gives one in a hundred over six times the median."""


class SimulatedEngine:
    """Implements `rlvr.engine.protocol.Engine`. The same request and seed give the same completions."""

    simulated = True

    def __init__(
        self,
        name: str,
        vocab_size: int,
        latency: Latency | None = None,
        *,
        max_length: int = 1 << 30,
        answer: Answer | None = None,
        encode: Encode | None = None,
        decode: Decode | None = None,
    ) -> None:
        """`answer` gives the text of a completion, and `encode` its token ids; without it the ids are random.

        `decode` gives the text of random ids; without it their text is their numbers.
        """
        if answer is not None and encode is None:
            raise ValueError("a simulated engine that is given answers also needs `encode`")
        self._name = name
        self._vocab_size = vocab_size
        self._latency = latency or Latency()
        self._max_length = max_length
        self._answer = answer
        self._encode = encode
        self._decode = decode
        self._version = 0
        self._slots = asyncio.Semaphore(self._latency.slots)
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._open = False
        self._requests = 0

    @property
    def version(self) -> int:
        """Weight version that it pretends to serve."""
        return self._version

    @property
    def healthy(self) -> bool:
        """Whether it was started and not closed."""
        return self._open

    async def start(self) -> None:
        """Ready at once."""
        _log.warning("%s is SIMULATED: latencies and made-up text, no model", self._name)
        self._open = True

    async def generate(self, request_id: str, token_ids: Sequence[int], sampling: Sampling, n: int) -> list[Completion]:
        """n completions after the time that they would take. Errors as those of the real engine."""
        self._check(token_ids, sampling, n)
        self._requests += 1
        # A request without a seed differs from the last one, but a whole run is still reproducible.
        seed = sampling.seed if sampling.seed is not None else -self._requests
        drafts = [self._draft(token_ids, sampling, self._chance(seed, index, token_ids)) for index in range(n)]
        async with self._slots:
            await self._resumed.wait()
            started = self._version
            await asyncio.sleep(self._latency.prefill_seconds_per_token * len(token_ids))
            # The group is complete when its longest member is: that is what long tails cost.
            await asyncio.sleep(self._latency.seconds_per_token * max(len(ids) for ids, _, _ in drafts))
            await self._resumed.wait()
        self._check_open()
        return [self._completion(draft, started) for draft in drafts]

    async def update_weights(self, update: WeightUpdate) -> int:
        """Pretend to load `update`: requests in flight wait meanwhile. The file is not read."""
        self._check_open()
        self._resumed.clear()
        try:
            await asyncio.sleep(self._latency.sync_seconds)
            self._version = update.version
        finally:
            self._resumed.set()
        return self._version

    async def close(self) -> None:
        """Requests in flight fail. May be called twice."""
        self._open = False

    def _check_open(self) -> None:
        if not self._open:
            raise InfrastructureError(f"{self._name} (simulated) is not running")

    def _check(self, token_ids: Sequence[int], sampling: Sampling, n: int) -> None:
        self._check_open()
        if not token_ids:
            raise DataError("the prompt is empty: it has no tokens")
        if len(token_ids) + sampling.max_new_tokens > self._max_length:
            raise DataError(
                f"a prompt of {len(token_ids)} tokens and max_new_tokens={sampling.max_new_tokens} do not fit into "
                f"the {self._max_length} tokens of the model"
            )
        if n < 1 or sampling.max_new_tokens < 1 or sampling.temperature < 0:
            raise UserError(f"cannot sample {n} completions with {sampling}")
        if sampling.temperature == 0 and n != 1:
            raise UserError(f"{n} greedy completions of a prompt are all the same: use temperature > 0, or one")

    @staticmethod
    def _chance(seed: int, index: int, token_ids: Sequence[int]) -> random.Random:
        key = repr((seed, index, tuple(token_ids))).encode()
        return random.Random(hashlib.blake2b(key, digest_size=8).digest())

    def _draft(
        self, token_ids: Sequence[int], sampling: Sampling, chance: random.Random
    ) -> tuple[tuple[int, ...], str, FinishReason]:
        latency = self._latency
        length = max(1, round(latency.length_median * math.exp(latency.length_sigma * chance.gauss(0.0, 1.0))))
        reason = FinishReason.LENGTH if length > sampling.max_new_tokens else FinishReason.STOP
        length = min(length, sampling.max_new_tokens)
        if self._answer is None or self._encode is None:
            ids = tuple(chance.randrange(self._vocab_size) for _ in range(length))
            text = self._decode(ids) if self._decode else " ".join(map(str, ids))
            return ids, text, reason
        text = self._answer(token_ids, chance)
        answered = tuple(self._encode(text))
        if not answered or len(answered) > sampling.max_new_tokens:
            return answered[: sampling.max_new_tokens] or (0,), text, FinishReason.LENGTH
        return answered, text, FinishReason.STOP

    def _completion(self, draft: tuple[tuple[int, ...], str, FinishReason], started: int) -> Completion:
        ids, text, reason = draft
        # Exact for uniformly random ids, and a placeholder for given answers.
        logprobs = np.full(len(ids), -math.log(self._vocab_size), dtype=np.float32)
        spans: tuple[tuple[int, int], ...] = ((started, len(ids)),)
        if self._version != started and len(ids) > 1:
            spans = ((started, len(ids) // 2), (self._version, len(ids) - len(ids) // 2))
        return Completion(ids, logprobs, text, reason, spans)
