"""A generation engine around vLLM's AsyncLLM: token ids in, completions with behaviour logprobs out.

vLLM is imported when the engine starts, in the process that holds it; it spawns two more. Errors of vLLM are
put into our taxonomy here, where the information is. Must not know about Ray, prompts or rewards.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rlvr.allocator import allocator_environment
from rlvr.engine import cpu, processes, quiet_wait, vllm_request, weight_transfer
from rlvr.engine.update_file import verify
from rlvr.errors import DataError, DeadlineError, InfrastructureError, RlvrError, UserError
from rlvr.records import Completion, Sampling, WeightUpdate

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

#: How long vLLM's processes may take to end after they were told to, before they are killed.
_SHUTDOWN_S = 10.0


@dataclass(frozen=True)
class VllmOptions:
    """Everything that an engine has to be told. Units are in the names."""

    name: str
    """Who this engine is in messages, e.g. rollout-0."""
    model_folder: str
    """Local folder in Hugging Face format: config, safetensors, tokenizer."""
    dtype: str = "float32"
    device: str = "cpu"
    max_length: int = 0
    """Tokens of prompt plus completion. 0: the model's own limit."""
    max_sequences: int = 256
    """Completions computed at the same time."""
    block_size: int = 32
    kv_cache_gb: float = 2.0
    """CPU only, GiB."""
    gpu_memory_share: float = 0.5
    """CUDA only."""
    cores: tuple[int, ...] = ()
    """CPU only: where its threads are bound."""
    sync_timeout_s: float = 120.0
    """Deadline of each phase of a weight update."""
    transfer: str = weight_transfer.BACKEND
    """Weight-transfer backend."""


class VllmEngine:
    """Implements `rlvr.engine.protocol.Engine`."""

    simulated = False

    def __init__(self, options: VllmOptions) -> None:
        if options.transfer != weight_transfer.BACKEND:
            raise UserError(
                f"weight transfer {options.transfer!r} is not supported yet: it has not been tested. "
                f"Use {weight_transfer.BACKEND!r}, which also works with a GPU"
            )
        self._options = options
        self._llm: AsyncLLM | None = None
        self._expected: dict[str, tuple[int, ...]] = {}
        self._max_length = 0
        self._vocab_size = 0
        self._version = 0
        self._sync_lock = asyncio.Lock()
        self._broken: asyncio.Future[None] | None = None
        """Resolved with the reason as its exception once the engine must not be used any more."""
        self._children: list[processes.Child] = []
        self._shared_memory: list[Path] = []

    @property
    def processes(self) -> list[int]:
        """Ids of the processes that vLLM runs for this engine."""
        return [child.pid for child in self._children]

    @property
    def version(self) -> int:
        """Weight version that is being served."""
        return self._version

    @property
    def healthy(self) -> bool:
        """Whether requests can be served; looks at vLLM's processes too."""
        if self._llm is None or self._broken is None or self._broken.done():
            return False
        return not self._llm.errored

    async def start(self) -> None:
        """Load the model (25-40 s on CPU). Raises UserError or InfrastructureError."""
        self._broken = asyncio.get_running_loop().create_future()
        # A failure that nobody is waiting for is reported by the next call, not as a warning at exit.
        self._broken.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._prepare_environment()
        weight_transfer.check_installed()
        self._expected = weight_transfer.expected_parameters(self._options.model_folder, self._options.dtype)
        before = {child.pid for child in processes.children()}
        try:
            self._llm = self._build()
            await self._phase("announce the weight transfer", self._init_transfer(self._llm))
        except RlvrError:
            raise
        except Exception as error:
            raise InfrastructureError(
                f"{self._options.name}: vLLM failed to start with {self._options.model_folder}: "
                f"{type(error).__name__}: {error}"
            ) from error
        finally:
            self._children = [child for child in processes.children() if child.pid not in before]
        # 400 MB of message queues, which would outlive a process that is killed.
        self._shared_memory = processes.shared_memory(self._children)
        processes.forget_names(self._shared_memory)

    async def generate(self, request_id: str, token_ids: Sequence[int], sampling: Sampling, n: int) -> list[Completion]:
        """n completions of the prompt. With a seed they are reproducible, and differ from one another.

        Raises DataError for a prompt this model cannot take, UserError for sampling settings that make no sense,
        InfrastructureError when the engine is gone.
        """
        llm = self._running()
        vllm_request.check(token_ids, sampling, n, max_length=self._max_length, vocab_size=self._vocab_size)
        task = asyncio.ensure_future(self._collect(llm, request_id, token_ids, sampling, n))
        awaited: set[asyncio.Future[Any]] = {task, self._broken_future()}
        try:
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self._running()  # raises: that is the other thing we waited for
            return await task
        finally:
            if not task.done():
                task.cancel()  # vLLM aborts the request
                await asyncio.wait({task}, timeout=1.0)

    async def update_weights(self, update: WeightUpdate) -> int:
        """Load `update` as one transaction; requests in flight are kept and go on with the new weights.

        Raises TrainingError when the file is not what the model needs: nothing was changed then. Raises
        InfrastructureError (DeadlineError names the phase) when the engine failed in the middle: it is unusable
        from then on, and says so.
        """
        async with self._sync_lock:
            llm = self._running()
            verify(update, self._expected, self._options.dtype)
            try:
                await self._transaction(llm, update)
            except BaseException as error:
                self._break(f"the update to weight version {update.version} failed: {error}")
                raise
            self._version = update.version
            return update.version

    async def close(self) -> None:
        """End vLLM's processes; after a grace period they are killed. May be called twice."""
        llm, self._llm = self._llm, None
        if self._broken is not None and not self._broken.done():
            self._broken.set_exception(InfrastructureError(f"{self._options.name} was closed"))
        if llm is not None:
            if (reader := llm.output_handler) is not None:
                reader.cancel()  # else it takes the end of the engine process for a crash, and logs a traceback
                await asyncio.wait({reader})
            with processes.names_in_place(self._shared_memory):
                await asyncio.to_thread(llm.shutdown, timeout=_SHUTDOWN_S)
                await asyncio.to_thread(processes.end, self._children, _SHUTDOWN_S)
        await asyncio.to_thread(processes.end, self._children, _SHUTDOWN_S)
        self._children, self._shared_memory = [], []

    # --- starting -------------------------------------------------------------------------------------

    def _prepare_environment(self) -> None:
        # No message to anybody about usage; and a model in a local folder needs no hub, so no wait for one.
        os.environ |= {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        if self._options.device != "cpu":
            return
        for name in cpu.INHERITED:
            value = os.environ.pop(name, None)
            if value is not None:
                _log.info("%s: ignoring the inherited %s=%s", self._options.name, name, value)
        cores = self._options.cores or cpu.machine_cores()
        # vLLM's sampler is compiled even when the model is not: half a minute at the first token, and it needs g++.
        os.environ |= allocator_environment(os.environ)  # for the processes that vLLM starts
        os.environ |= cpu.vllm_environment(cores) | {quiet_wait.VARIABLE: "1", "TORCH_COMPILE_DISABLE": "1"}

    def _build(self) -> AsyncLLM:
        from vllm.config.weight_transfer import WeightTransferConfig
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.platforms import current_platform
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.async_llm import AsyncLLM

        from rlvr.engine import cpu_kernels

        options = self._options
        if current_platform.device_type != options.device:
            raise UserError(
                f"rollout.device is {options.device}, but vLLM on this node is built for "
                f"{current_platform.device_type}. Install the requirements of the other target, or change it"
            )
        memory: dict[str, Any] = (
            {"kv_cache_memory_bytes": int(options.kv_cache_gb * 2**30)}
            if options.device == "cpu"
            else {"gpu_memory_utilization": options.gpu_memory_share}
        )
        if options.device == "cpu":
            # A prompt cut in two makes vLLM rewind the request's random generator, which CPU generators cannot: the
            # engine dies ("CPU Generator does not use offset"). Whole prompts only.
            memory |= {"enable_chunked_prefill": False, "ir_op_priority": cpu_kernels.PRIORITY}
        arguments = AsyncEngineArgs(
            model=options.model_folder,
            dtype=options.dtype,
            max_model_len=options.max_length or None,
            max_num_seqs=options.max_sequences,
            block_size=options.block_size,
            enable_prefix_caching=True,
            enforce_eager=True,
            logprobs_mode="processed_logprobs",
            # The model's own sampling defaults (Qwen's repetition_penalty, say) would change the distribution
            # that we say we sample from.
            generation_config="vllm",
            weight_transfer_config=WeightTransferConfig(backend=options.transfer),
            disable_log_stats=True,
            trust_remote_code=False,
            **memory,
        )
        try:
            config = arguments.create_engine_config(UsageContext.ENGINE_CONTEXT)
        except ValueError as error:
            raise UserError(f"vLLM refuses {options.model_folder} with these settings: {error}") from error
        self._max_length = config.model_config.max_model_len
        self._vocab_size = config.model_config.get_vocab_size()
        return AsyncLLM.from_vllm_config(config, usage_context=UsageContext.ENGINE_CONTEXT, disable_log_stats=True)

    async def _init_transfer(self, llm: AsyncLLM) -> None:
        from vllm.distributed.weight_transfer.base import WeightTransferInitRequest

        shapes = {name: list(shape) for name, shape in self._expected.items()}
        request = WeightTransferInitRequest(init_info={"shapes": shapes, "dtype": self._options.dtype})
        await llm.init_weight_transfer_engine(request)
        await llm.update_weight_version(str(self._version))

    # --- generating -----------------------------------------------------------------------------------

    async def _collect(
        self, llm: AsyncLLM, request_id: str, token_ids: Sequence[int], sampling: Sampling, n: int
    ) -> list[Completion]:
        from vllm import TokensPrompt
        from vllm.exceptions import VLLMClientError
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        name = self._options.name
        try:
            parameters = vllm_request.sampling_parameters(sampling, n)
            prompt = TokensPrompt(prompt_token_ids=list(token_ids))
            final = None
            async for output in llm.generate(prompt, parameters, request_id):
                final = output
        except (VLLMClientError, ValueError) as error:
            raise DataError(f"{name}: vLLM refuses the request {request_id}: {error}") from error
        except EngineDeadError as error:
            self._break("vLLM's engine process died")
            raise InfrastructureError(f"{name}: vLLM's engine process died during {request_id}") from error
        except EngineGenerateError as error:
            reason = error.__cause__ or error
            raise InfrastructureError(f"{name}: vLLM failed on {request_id}: {reason!r}") from error
        if final is None or len(final.outputs) != n:
            raise InfrastructureError(f"{name}: vLLM returned no complete group for {request_id}")
        return [vllm_request.completion(f"{name}: {request_id}", output) for output in final.outputs]

    # --- updating -------------------------------------------------------------------------------------

    async def _transaction(self, llm: AsyncLLM, update: WeightUpdate) -> None:
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

        request = WeightTransferUpdateRequest(update_info={"path": update.path, "version": update.version})
        # Clearing the cache here moves running requests back to the queue: they are kept, and after the update
        # their keys and values are computed anew, from their tokens, with the new weights.
        await self._phase("pause generation", llm.pause_generation(mode="keep", clear_cache=True))
        await self._phase("start the weight update", llm.start_weight_update())
        await self._phase("load the weights", llm.update_weights(request))
        await self._phase("finish the weight update", llm.finish_weight_update(str(update.version)))
        # Nothing ran since the pause, so this finds an empty cache; vLLM only returns False, and goes on serving
        # old keys and values, when a block is in use after all.
        if not await self._phase("reset the prefix cache", llm.reset_prefix_cache()):
            raise InfrastructureError(f"{self._options.name}: vLLM did not reset its prefix cache")
        served = await self._phase("acknowledge the weight version", llm.get_weight_version())
        if served != str(update.version):
            raise InfrastructureError(
                f"{self._options.name}: weight version {update.version} was loaded, but {served} is served"
            )
        await self._phase("resume generation", llm.resume_generation())

    async def _phase(self, what: str, call: Awaitable[_T]) -> _T:
        seconds = self._options.sync_timeout_s
        try:
            return await asyncio.wait_for(call, timeout=seconds)
        except TimeoutError:
            raise DeadlineError(self._options.name, "vLLM", what, seconds) from None
        except RlvrError:
            raise
        except Exception as error:
            raise InfrastructureError(f"{self._options.name}: vLLM failed to {what}: {error!r}") from error

    # --- state ----------------------------------------------------------------------------------------

    def _broken_future(self) -> asyncio.Future[None]:
        if self._broken is None:
            raise InfrastructureError(f"{self._options.name} was not started")
        return self._broken

    def _running(self) -> AsyncLLM:
        broken = self._broken_future()
        if broken.done():
            broken.result()
        if self._llm is None:
            raise InfrastructureError(f"{self._options.name} is not running")
        return self._llm

    def _break(self, reason: str) -> None:
        broken = self._broken_future()
        if not broken.done():
            broken.set_exception(InfrastructureError(f"{self._options.name} is out of service: {reason}"))
