"""In which order training prompts are issued: a pure function of the seed, the prompts' ids, and a small position.

Each epoch is a shuffle without replacement. Shuffles order the prompts by a hash of seed, epoch and id, so they do
not depend on the Python version, nor on the order of the rows in the file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from rlvr.errors import ConfigError, DataError
from rlvr.records import Prompt


class Sampler:
    """An endless stream of prompts, whose position can be saved and restored.

    Unbalanced, every prompt comes once before any comes again. Balanced, every category comes once in each round,
    in a fresh order, and each category walks through its own prompts epoch by epoch.
    """

    def __init__(self, prompts: Sequence[Prompt], seed: int, balance: bool = False) -> None:
        """Raises DataError without prompts or with two of one id; ConfigError on balance without categories."""
        if not prompts:
            raise DataError("there are no prompts to train on")
        if len({prompt.id for prompt in prompts}) != len(prompts):
            raise DataError("two training prompts have the same id")
        self._seed = seed
        self._balance = balance
        self._data = _hash("data", *sorted(prompt.id for prompt in prompts))[:16]
        pools: dict[str, list[Prompt]] = defaultdict(list)
        for prompt in prompts:
            pools[prompt.category if balance else ""].append(prompt)
        if balance and len(pools) == 1:
            raise ConfigError(
                "task.balance=true needs two categories or more; set task.categorise or task.fields.category"
            )
        self._pools = {category: pools[category] for category in sorted(pools)}
        self._positions = dict.fromkeys(self._pools, 0)
        """Prompts drawn from each category since the first epoch began."""
        self._orders: dict[str, tuple[int, list[Prompt]]] = {}
        """The shuffle of each category's current epoch."""

    def next(self) -> Prompt:
        """The prompt to issue now."""
        category = self._next_category()
        epoch, index = divmod(self._positions[category], len(self._pools[category]))
        self._positions[category] += 1
        return self._order(category, epoch)[index]

    def state(self) -> dict[str, Any]:
        """The position, as a small JSON-serialisable dict."""
        epochs = [drawn // len(self._pools[category]) for category, drawn in self._positions.items()]
        return {
            "seed": self._seed,
            "balance": self._balance,
            "data": self._data,
            "drawn": self._drawn,
            "epoch": min(epochs),
            "positions": dict(self._positions),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue exactly where `state` was taken. Raises DataError when seed, data or balance differ from then."""
        here = self.state()
        if changed := [name for name in ("seed", "balance", "data") if state.get(name) != here[name]]:
            meaning = {"seed": "run.seed", "balance": "task.balance", "data": "the training prompts"}
            raise DataError(
                f"the order of prompts cannot be continued: {', '.join(meaning[name] for name in changed)} changed "
                "since the checkpoint was written. Put them back, or start a new run"
            )
        positions = state.get("positions")
        if not isinstance(positions, dict) or set(positions) != set(self._positions):
            raise DataError("the order of prompts cannot be continued: the saved position is damaged")
        self._positions = {category: int(positions[category]) for category in self._pools}

    @property
    def _drawn(self) -> int:
        return sum(self._positions.values())

    def _next_category(self) -> str:
        """Each round visits every category once, in an order of its own, so none is tied to a place in the batch."""
        if len(self._pools) == 1:
            return ""
        round_, place = divmod(self._drawn, len(self._pools))
        return sorted(self._pools, key=lambda category: _hash("round", self._seed, round_, category))[place]

    def _order(self, category: str, epoch: int) -> list[Prompt]:
        cached = self._orders.get(category)
        if cached is None or cached[0] != epoch:
            order = sorted(self._pools[category], key=lambda prompt: _hash("epoch", self._seed, epoch, prompt.id))
            cached = self._orders[category] = (epoch, order)
        return cached[1]


def _hash(*parts: object) -> str:
    """Stable over processes, machines and Python versions, which hash() and random.shuffle() need not be."""
    return blake2b("\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
