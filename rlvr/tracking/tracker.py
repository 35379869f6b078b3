"""The tracker: the one object that the driver tells what happens; it passes it on to files, console and wandb.

It decides nothing about training. While the run goes on, a file that cannot be written raises (a run without its
ledger is not worth its hours); at the end every part is closed whatever the others do, and what failed is said.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlvr.config import Config
from rlvr.records import Group
from rlvr.tracking.console import Console, open_console
from rlvr.tracking.curve import draw_curve
from rlvr.tracking.jsonl import EventLog, JsonlWriter
from rlvr.tracking.ledger import Purpose, write_ledger
from rlvr.tracking.memory import MemorySampler
from rlvr.tracking.metrics import Evaluation, Metrics, evaluation_metrics, step_metrics
from rlvr.tracking.run_folder import RunFolder
from rlvr.tracking.step_clock import StepTime
from rlvr.tracking.summary import build_summary, write_summary
from rlvr.tracking.text import redact
from rlvr.tracking.wandb_run import WandbRun, open_wandb

log = logging.getLogger(__name__)


class Tracker:
    """One run's outputs, from `open` to `close`. All methods are called on one event loop."""

    def __init__(
        self,
        folder: RunFolder,
        *,
        identity: Mapping[str, Any],
        console: Console,
        wandb: WandbRun,
        memory: MemorySampler,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`identity` says whose outputs these are and stands in the summary: run_id, name, verb, config, seed."""
        self.folder = folder
        self._identity = identity
        self._console = console
        self._wandb = wandb
        self._memory = memory
        self._now = now
        self._begun = now()
        self._metrics = JsonlWriter(folder.metrics)
        self._events = EventLog(folder.events)
        self._steps: list[Metrics] = []
        self._evaluations: list[Evaluation] = []
        self._counts: dict[str, int] = {}
        self._closed = False

    @classmethod
    def open(cls, config: Config, folder: RunFolder, *, run_id: str, config_name: str, verb: str) -> Tracker:
        """Start tracking as `config.track` says. Raises UserError when wandb is asked for and cannot start."""
        wandb = open_wandb(
            config.track.wandb,
            project=config.track.wandb_project,
            run_id=run_id,
            name=config.run.name,
            folder=folder.path,
            config=dataclasses.asdict(config),
            job_type=verb,
        )
        try:
            console = open_console(
                config.track.console,
                title=config.run.name,
                steps=config.run.steps if verb == "train" else 0,
                stream=sys.stdout,
            )
        except BaseException:
            wandb.finish(1)
            raise
        identity = {
            "run_id": run_id,
            "name": config.run.name,
            "verb": verb,
            "config": config_name,
            "seed": config.run.seed,
        }
        try:
            tracker = cls(folder, identity=identity, console=console, wandb=wandb, memory=MemorySampler(run_id))
            tracker._memory.start()
            tracker.event("run_started", **identity)
        except BaseException:
            console.close()
            wandb.finish(1)
            raise
        console.message(f"run folder: {folder.path}")
        return tracker

    def event(self, kind: str, **fields: Any) -> None:
        """Something happened. Goes to events.jsonl, without secrets."""
        self._events.write(kind, **fields)

    def phase(self, text: str) -> None:
        """The run begins something that takes a while. Shown, and an event."""
        self._console.phase(text)
        self.event("phase", text=text)

    def message(self, text: str) -> None:
        """Something to know that is no phase: the dashboard's address, rows that were skipped. Shown, and an event."""
        self._console.message(text)
        self.event("message", text=text)

    def evaluating(self, step: int, problems: int) -> None:
        """An evaluation begins; `step` steps were made before it."""
        self._console.phase(f"evaluating {problems} problems")
        self.event("evaluation_started", step=step, problems=problems)

    async def step(
        self,
        step: int,
        groups: Sequence[Group],
        learner_stats: Mapping[str, float],
        time: StepTime,
        *,
        counts: Mapping[str, int],
        temperature: float,
        weight_version: int,
    ) -> None:
        """A step is done: `groups` ended in it, `counts` are the groups by state since the run began.

        Raises UserError when the disk is full.
        """
        metrics = step_metrics(
            step, groups, learner_stats, time, counts=counts, temperature=temperature, weight_version=weight_version
        )
        self._steps.append(metrics)
        self._counts = dict(counts)
        self._record("step", metrics)
        self._show_sample(groups)
        self._console.step(metrics)
        await self._write_ledger("train", step, groups)

    async def evaluation(self, result: Evaluation, groups: Sequence[Group]) -> None:
        """An evaluation is done, on `groups`. Raises UserError when the disk is full."""
        self._evaluations.append(result)
        self._record("evaluation", evaluation_metrics(result))
        self._console.evaluation(result)
        await self._write_ledger("eval", result.step, groups)

    def close(self, status: str, error: str | None = None) -> None:
        """The run ended as `status` (completed, failed, interrupted): write the summary and the curve, close all.

        Never raises for what cannot be written: says so, and goes on. Closing twice is fine.
        """
        if self._closed:
            return
        self._closed = True
        summary = build_summary(
            status=status,
            error=redact(error) if error else None,
            identity=self._identity,
            wall_s=self._now() - self._begun,
            steps=self._steps,
            evaluations=self._evaluations,
            groups=self._counts,
            peak_memory_gb=self._memory.stop(),
        )
        self._attempt("write the summary", lambda: write_summary(self.folder.summary, summary))
        self._attempt("draw the learning curve", self._draw)
        self._attempt("write the last event", lambda: self.event("run_ended", status=status, error=error or None))
        self._attempt("finish wandb", lambda: self._finish_wandb(summary, exit_code=0 if status == "completed" else 1))
        self._attempt("close metrics.jsonl", self._metrics.close)
        self._attempt("close events.jsonl", self._events.close)
        self._attempt("close the console", self._close_console)

    def _record(self, kind: str, metrics: Metrics) -> None:
        self._metrics.write({"kind": kind, "time": time.time(), **metrics})
        self._wandb.log(metrics, step=int(metrics["step"]))

    def _show_sample(self, groups: Sequence[Group]) -> None:
        for group in reversed(groups):
            if group.completions and group.verdicts:
                completion, verdict = group.completions[-1], group.verdicts[-1]
                prompt = group.prompt.text or (group.prompt.messages or ({"content": ""},))[-1]["content"]
                score = "no score" if verdict.score is None else f"score {verdict.score:g}"
                found = f", answer {verdict.extracted}" if verdict.extracted else ""
                decided = f"{score}, {verdict.status}{found}, reference {group.prompt.reference}"
                self._console.sample(prompt, completion.text, decided)
                return

    async def _write_ledger(self, purpose: Purpose, step: int, groups: Sequence[Group]) -> None:
        run_id = str(self._identity["run_id"])
        await asyncio.to_thread(write_ledger, self.folder.ledger, run_id, purpose, step, list(groups))

    def _draw(self) -> None:
        draw_curve(self.folder.curve, str(self._identity["name"]), self._steps, self._evaluations)

    def _finish_wandb(self, summary: Mapping[str, Any], exit_code: int) -> None:
        try:
            self._wandb.summarise(summary)
        finally:
            self._wandb.finish(exit_code)

    def _close_console(self) -> None:
        self._console.message(f"results: {self.folder.path} (summary.json, metrics.jsonl, ledger, learning curve)")
        self._console.close()

    def _attempt(self, what: str, do: Callable[[], object]) -> None:
        try:
            do()
        except Exception as error:  # the end of a run: the other parts must still be closed, and this one is reported
            log.error("could not %s: %s", what, redact(str(error)))
