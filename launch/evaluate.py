"""The verb `eval`: accuracy of a model or of a run's checkpoint on the held-out split. Starts no learner."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rlvr.actors.reward import RewardPool
from rlvr.actors.rollout import RolloutPool
from rlvr.concurrency import all_of
from rlvr.config import Config
from rlvr.driver.evaluation import Evaluator
from rlvr.driver.prompts import with_token_ids
from rlvr.launch.run import Material, Scene, execute
from rlvr.tracking.run_folder import resolve_checkpoint


def main(config: Config, name: str) -> int:
    """Evaluate as configured. Returns the exit code."""
    if config.eval.checkpoint:
        checkpoint = resolve_checkpoint(Path(config.eval.checkpoint))
        config = replace(config, model=replace(config.model, path=str(checkpoint)))
    return execute(config, f"eval-{name}", "eval", _evaluate, split="test")


async def _evaluate(scene: Scene, material: Material) -> None:
    config = scene.config
    prompts = material.test[: config.eval.problems] if config.eval.problems else material.test
    rollout = RolloutPool(config, str(material.model_folder), scene.namespace, scene.env)
    reward = RewardPool(config, scene.namespace, scene.env)
    scene.closers += [rollout.close, reward.close]
    scene.tracker.phase(f"starting {config.rollout.engines} engine(s), {config.reward.workers} reward worker(s)")
    await all_of([rollout.start(), reward.start()])
    encoded = [with_token_ids(prompt, material.encode) for prompt in prompts]
    await Evaluator(config, encoded, material.task.stop, rollout, reward, scene.tracker).evaluate(step=0)
