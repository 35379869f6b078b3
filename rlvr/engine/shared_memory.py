"""The class behind the "shared_memory" backend. Imported by vLLM's worker, by name, when a model is loaded.

Apart from `weight_transfer` because it subclasses a class of vLLM, which must not be imported while vLLM is
still loading its plugins. Must not know what calls it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)

from rlvr.engine.update_file import verify
from rlvr.engine.weight_transfer import load
from rlvr.records import WeightUpdate


@dataclass
class InitInfo(WeightTransferInitInfo):
    """What every update must hold."""

    shapes: dict[str, list[int]]
    dtype: str


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    """One version of the weights."""

    path: str
    version: int


class SharedMemoryWeightTransferEngine(WeightTransferEngine[InitInfo, UpdateInfo]):
    """Loads whole-model updates from a safetensors file on this host."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo
    supports_draft_weight_update = False

    _expected: InitInfo | None = None

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        self._expected = init_info

    def start_weight_update(self) -> None:
        """Nothing yet: the model stays whole until the file is known to be good."""

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self.receive_weights(self.parse_update_info(update_info))
        # Unlike the base class, which also asks a CPU to do this: torch raises where there is no accelerator.
        if self.device.type != "cpu":
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: UpdateInfo) -> None:
        if self._expected is None:
            raise RuntimeError("the weight transfer was not initialised")
        expected = {name: tuple(shape) for name, shape in self._expected.shapes.items()}
        verify(WeightUpdate(update_info.version, update_info.path), expected, self._expected.dtype)
        load(self.model, self.model_config, update_info.path)

    def finish_weight_update(self) -> None:
        """Nothing left: a model is never left between two versions from one call to the next."""

    def shutdown(self) -> None:
        """Nothing is held between updates."""
