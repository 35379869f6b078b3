"""What every verb that works on a model shares: the run folder, the guardian, Ray, signals, and an honest end.

`execute` runs a body inside all of that and turns its outcome into an exit code. Knows nothing of training.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from rlvr import compose, models, tasks
from rlvr.config import Config
from rlvr.driver.prompts import lengths
from rlvr.errors import ConfigError, DataError, RlvrError, UserError
from rlvr.launch import cluster, signals
from rlvr.launch.guardian import MARKER, Guardian, shared_folder, temporary_folder
from rlvr.launch.signals import Interruption
from rlvr.records import Prompt
from rlvr.tasks import Task
from rlvr.tracking.run_folder import RunFolder
from rlvr.tracking.tracker import Tracker

log = logging.getLogger(__name__)

EXIT_OK, EXIT_FAILED, EXIT_USER_ERROR = 0, 1, 2
"""Interrupted runs exit with 128 + the signal's number, as a shell reports it."""


@dataclass
class Scene:
    """What a body works with. `env` goes into every actor's environment."""

    config: Config
    run_id: str
    folder: RunFolder
    tracker: Tracker
    shared: Path
    env: dict[str, str]
    namespace: str
    interruption: Interruption = field(default_factory=Interruption)
    closers: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    """Pools register how they end; run in reverse order."""


@dataclass(frozen=True)
class Material:
    """Model folder and prompts of a run, checked."""

    model_folder: Path
    task: Task
    train: list[Prompt]
    test: list[Prompt]
    encode: Callable[[Prompt], tuple[int, ...]]
    max_length: int


Body = Callable[[Scene, Material], Awaitable[None]]


def execute(config: Config, name: str, verb: str, body: Body, *, split: Literal["train", "test"]) -> int:
    """Prepare model and task, start Ray, run `body`; the exit code is 0 only when it did what it was asked.

    `split` is the one that the verb cannot do without.
    """
    run_name = config.run.name or f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    run_dir = config.run.dir or str(Path("runs") / run_name)
    config = replace(config, run=replace(config.run, name=run_name, dir=run_dir))
    folder = RunFolder.create(Path(run_dir))
    compose.save(config, folder.config)
    run_id = secrets.token_hex(6)
    guardian = Guardian(run_id)
    try:
        env = guardian.mark_environment()
        shared = shared_folder(run_id)
        temporary = temporary_folder(run_id)
        for private in (shared, temporary):
            private.mkdir(mode=0o700)
        env["TMPDIR"] = str(temporary)
        tracker = Tracker.open(config, folder, run_id=run_id, config_name=name, verb=verb)
        status, error, code = "failed", "the run ended before it began", EXIT_FAILED
        try:
            scene = Scene(config, run_id, folder, tracker, shared, env, namespace=f"rlvr-{run_id}")
            status, error, code = asyncio.run(_outcome(scene, body, split))
        finally:
            with signals.ignored():
                tracker.close(status, error)
                cluster.stop()
    finally:
        with signals.ignored():
            swept = guardian.finish()
        if not swept:
            sys.stderr.write(f"some processes of this run did not end; look for {MARKER}={run_id} in /proc/*/environ\n")
    if error:
        sys.stderr.write(f"{verb} {status}: {error}\n")
    return code


async def _outcome(scene: Scene, body: Body, split: str) -> tuple[str, str, int]:
    """Run the body to its end, whatever that is: (status, error text, exit code)."""
    task = asyncio.ensure_future(_staged(scene, body, split))
    scene.interruption.cancels(task)
    try:
        await task
    except asyncio.CancelledError:
        number = scene.interruption.received or signal.SIGINT
        return "interrupted", f"received {number.name}", 128 + number
    except RlvrError as error:
        scene.tracker.event("run_failed", error=str(error), kind_of_error=type(error).__name__)
        return "failed", str(error), EXIT_USER_ERROR if isinstance(error, UserError) else EXIT_FAILED
    except Exception as error:  # a bug of ours: keep its traceback, and end like any other failure
        log.exception("unexpected error")
        scene.tracker.event("run_failed", error=repr(error), kind_of_error=type(error).__name__)
        return "failed", repr(error), EXIT_FAILED
    return "completed", "", EXIT_OK


async def _staged(scene: Scene, body: Body, split: str) -> None:
    """Model and task ready, Ray up, body, pools closed. What is wrong with the request shows before Ray starts."""
    with scene.interruption.while_blocking():
        material = _prepare(scene, split)
    scene.tracker.phase("starting Ray")
    ray_cluster = cluster.start(scene.config.cluster, scene.namespace)
    current = asyncio.current_task()
    assert current is not None  # we are inside one
    scene.interruption.cancels(current)  # ray.init installs handlers of its own
    if ray_cluster.dashboard:
        scene.tracker.message(f"Ray dashboard: {ray_cluster.dashboard} (token: ray get-auth-token)")
    try:
        await body(scene, material)
    except Exception:
        kept = cluster.keep_logs(ray_cluster.session, scene.folder.path / "logs")
        scene.tracker.message(f"logs of {len(kept) // 2} actors: {scene.folder.path / 'logs'}")
        raise
    finally:
        for close in reversed(scene.closers):
            await close()


def _prepare(scene: Scene, split: str) -> Material:
    """Resolve the model, build the task, check every prompt's length. Raises UserError with all that is wrong."""
    config, tracker = scene.config, scene.tracker
    model_path = config.model.path
    tracker.phase(f"preparing model {model_path}")
    model_folder = models.resolve(
        model_path, cache_dir=config.model.cache_dir, hub_timeout_s=config.model.hub_timeout_s, log=tracker.phase
    )
    context = models.context_length(model_folder)
    if config.model.max_length > context:
        raise ConfigError(f"model.max_length={config.model.max_length}, but {model_path} ends at {context} tokens")
    max_length = config.model.max_length or context
    longest = max(config.max_new_tokens, config.eval.max_new_tokens)
    if longest >= max_length:
        raise ConfigError(f"max_new_tokens={longest} leaves no room for a prompt in {max_length} tokens of context")
    limit = config.task.max_prompt_tokens or max_length - longest
    if limit + longest > max_length:
        raise ConfigError(
            f"task.max_prompt_tokens={limit} plus max_new_tokens={longest} exceeds the context of {max_length} tokens"
        )
    tracker.phase(f"preparing task {config.task.name}")
    task = tasks.build(config)
    tokenizer = models.load_tokenizer(model_folder)

    def encode(prompt: Prompt) -> tuple[int, ...]:
        return models.encode_prompt(tokenizer, prompt)

    bad = list(task.bad_rows)
    kept: dict[str, list[Prompt]] = {}
    for split, prompts in (("train", task.train), ("test", task.test)):
        kept[split], too_long = tasks.check_lengths(
            prompts, lengths(prompts, encode, limit), limit, config.task.on_bad_row
        )
        bad += too_long
    for row in bad:
        tracker.event("bad_row", file=row.file, line=row.line, reason=row.reason)
    if bad:
        tracker.message(f"{len(bad)} bad rows skipped (see events.jsonl)")
    if not kept[split]:
        raise DataError(f"task {config.task.name} has no prompt left in its {split} split")
    return Material(model_folder, task, kept["train"], kept["test"], encode, max_length)
