"""From the configuration to an engine. Knows which engines there are, and imports only the chosen one.

Must not know about Ray: whoever holds the engine says which one of how many on this machine it is.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlvr.config import Config
from rlvr.engine import cpu
from rlvr.engine.protocol import Engine
from rlvr.errors import ConfigError, UserError


@dataclass(frozen=True)
class Place:
    """Where an engine runs."""

    name: str
    """e.g. rollout-0."""
    device: str
    """cpu | cuda."""
    index: int
    """Among the engines on the same machine."""
    engines: int
    """How many those are."""


def make_engine(config: Config, model_folder: str, place: Place) -> Engine:
    """The engine that `rollout.engine` names, not started yet. Raises ConfigError for a name there is none of."""
    kind = config.rollout.engine
    if kind == "vllm":
        return _vllm(config, model_folder, place)
    if kind == "simulated":
        return _simulated(config, model_folder, place)
    raise ConfigError(f"rollout.engine: there is no engine {kind!r}. Use vllm or simulated")


def _vllm(config: Config, model_folder: str, place: Place) -> Engine:
    from rlvr.engine.vllm import VllmEngine, VllmOptions

    rollout = config.rollout
    cores: tuple[int, ...] = ()
    if place.device == "cpu":
        cores = cpu.engine_cores(cpu.machine_cores(), engines=place.engines, index=place.index, threads=rollout.threads)
    return VllmEngine(
        VllmOptions(
            name=place.name,
            model_folder=model_folder,
            dtype=config.model.dtype,
            device=place.device,
            max_length=config.model.max_length,
            block_size=rollout.block_size,
            kv_cache_gb=rollout.kv_cache_gb,
            gpu_memory_share=rollout.gpu_memory_share,
            cores=cores,
            sync_timeout_s=rollout.sync_timeout_s,
        )
    )


def _simulated(config: Config, model_folder: str, place: Place) -> Engine:
    from transformers import AutoTokenizer

    from rlvr.engine.simulated import Latency, SimulatedEngine

    try:
        vocab_size = int(json.loads((Path(model_folder) / "config.json").read_text())["vocab_size"])
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{model_folder} is no model folder with a vocab_size in its config.json: {error}") from error
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    return SimulatedEngine(
        place.name,
        vocab_size,
        Latency(seconds_per_token=0.002, prefill_seconds_per_token=0.0001, sync_seconds=0.05),
        max_length=config.model.max_length or 1 << 30,
        answer=guess,
        encode=lambda text: tokenizer.encode(text, add_special_tokens=False),
    )


def guess(_prompt: Sequence[int], chance: random.Random) -> str:
    """A small number in the format of GSM8K: right now and then, so that groups differ in score."""
    padding = " so" * min(40, int(chance.lognormvariate(1.5, 0.8)))
    return f" I guess{padding}.\n#### {chance.randrange(20)}"
