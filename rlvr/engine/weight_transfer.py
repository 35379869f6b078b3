"""Our engine for vLLM's weight-transfer API: "shared_memory" loads a safetensors file that lies on this host.

vLLM ships none for CPU. Every vLLM process finds this one through the `vllm.general_plugins` entry point of
the installed package, so rlvr has to be installed wherever an engine runs. Runs inside vLLM's worker process;
must not know about Ray or about who wrote the file. Device-neutral: the file is mapped on the host and copied
to wherever the model lives.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from rlvr.engine import quiet_wait
from rlvr.errors import UserError

if TYPE_CHECKING:
    from vllm.config import ModelConfig

#: Name of the backend in vLLM's WeightTransferConfig.
BACKEND = "shared_memory"
PLUGIN_GROUP = "vllm.general_plugins"
PLUGIN_NAME = "rlvr_weight_transfer"


def register() -> None:
    """Prepare this process of vLLM: our backend, our kernels, and how to wait. May be called several times."""
    quiet_wait.install()
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    from rlvr.engine import cpu_kernels

    cpu_kernels.register()

    if BACKEND not in WeightTransferEngineFactory._registry:
        # By name, not by class: the class needs modules of vLLM that are not ready while plugins are loaded.
        WeightTransferEngineFactory.register_engine(
            BACKEND, "rlvr.engine.shared_memory", "SharedMemoryWeightTransferEngine"
        )


def check_installed() -> None:
    """Raise UserError unless vLLM's processes on this machine will find the plugin and be able to load it."""
    advice = "rlvr must be installed on every node that runs an engine: pip install --no-deps <rlvr checkout or wheel>"
    found = [point for point in entry_points(group=PLUGIN_GROUP) if point.name == PLUGIN_NAME]
    if not found:
        raise UserError(
            f"vLLM on this node does not know rlvr's weight transfer (no entry point {PLUGIN_NAME}). {advice}"
        )
    try:
        found[0].load()
    except (ImportError, AttributeError) as error:
        raise UserError(f"the entry point {found[0].value} of rlvr cannot be loaded: {error}. {advice}") from error


def expected_parameters(model_folder: str, dtype: str) -> dict[str, tuple[int, ...]]:
    """Names and shapes of what a learner of this model sends: its Hugging Face parameters, tied ones once.

    Built without memory for the weights. Names follow the model class, not the checkpoint file: some files
    carry a copy of tied embeddings, or leave out a prefix.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(model_folder)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    model.tie_weights()
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def mapped_tensors(path: str) -> Iterator[tuple[str, Any]]:
    """(name, tensor) of each tensor in the file, backed by the mapped file: nothing is copied yet."""
    from safetensors import safe_open

    with safe_open(path, framework="pt", device="cpu") as file:
        for name in file.keys():  # noqa: SIM118 (the handle is not a mapping)
            yield name, file.get_tensor(name)


def load(model: Any, model_config: ModelConfig, path: str) -> None:
    """Replace all weights of a vLLM model by those in the file. The model is unusable if this raises.

    A bare `load_weights` would not do: on CPU the weights of linear layers are gone once they are packed.
    """
    from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

    # A tied parameter belongs to two modules; named_parameters lists it once, under the name that gets loaded.
    needed = {name for name, _ in model.named_parameters()}
    sharing = _modules_that_share_a_weight(model)
    # It warns about every rotary embedding, which has no weights to load; what is missing is found out below.
    logging.getLogger(finalize_layerwise_reload.__module__).setLevel(logging.ERROR)
    initialize_layerwise_reload(model)
    loaded = model.load_weights(mapped_tensors(path))
    if loaded is None:
        raise RuntimeError(f"{type(model).__name__} does not report which weights it loaded; it is not supported")
    if needed - loaded:
        raise RuntimeError(f"no weights were loaded for {', '.join(sorted(needed - loaded))}")
    finalize_layerwise_reload(model, model_config)
    for module in sharing:
        # The module that was not loaded itself (lm_head of tied embeddings) still multiplies with a packed copy
        # of the old weights.
        module.quant_method.process_weights_after_loading(module)


def _modules_that_share_a_weight(model: Any) -> list[Any]:
    owners: dict[int, list[Any]] = {}
    for module in model.modules():
        weight = module._parameters.get("weight")
        if weight is not None and hasattr(module, "quant_method"):
            owners.setdefault(id(weight), []).append(module)
    return [module for modules in owners.values() if len(modules) > 1 for module in modules]
