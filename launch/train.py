"""The verb `train`: put the actors on stage and hand them to the driver."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rlvr.actors.learner import LearnerPool
from rlvr.actors.reference import ReferencePool
from rlvr.actors.reward import RewardPool
from rlvr.actors.rollout import RolloutPool
from rlvr.concurrency import all_of
from rlvr.config import Config
from rlvr.driver.evaluation import Evaluator
from rlvr.driver.loop import Driver
from rlvr.driver.parity import ParityProbe
from rlvr.driver.prompts import with_token_ids
from rlvr.launch.run import Material, Scene, execute
from rlvr.records import Prompt
from rlvr.tasks import Sampler


def main(config: Config, name: str) -> int:
    """Train as configured. Returns the exit code."""
    return execute(config, name, "train", _train, split="train")


async def _train(scene: Scene, material: Material) -> None:
    config = scene.config
    model = str(material.model_folder)
    rollout = RolloutPool(config, model, scene.namespace, scene.env)
    reward = RewardPool(config, scene.namespace, scene.env)
    learner = LearnerPool(config, model, scene.namespace, str(scene.shared), scene.env)
    reference = ReferencePool(config, model, scene.namespace, scene.env) if config.algorithm.kl.coef > 0 else None
    pools = [pool for pool in (rollout, reward, learner, reference) if pool is not None]
    scene.closers += [pool.close for pool in pools]
    scene.tracker.phase(
        f"starting {config.rollout.engines} engine(s), {config.learner.ranks} learner rank(s), "
        f"{config.reward.workers} reward worker(s)" + (", the reference" if reference else "")
    )
    await all_of(pool.start() for pool in pools)
    sampler = Sampler(material.train, seed=config.run.seed, balance=config.task.balance)
    test = [with_token_ids(prompt, material.encode) for prompt in _held_out(config, material)]
    driver = Driver(
        config=config,
        next_prompt=lambda: with_token_ids(sampler.next(), material.encode),
        stop=material.task.stop,
        rollout=rollout,
        reward=reward,
        learner=learner,
        reference=reference,
        evaluator=Evaluator(config, test, material.task.stop, rollout, reward, scene.tracker),
        probe=ParityProbe(with_token_ids(material.train[0], material.encode)),
        tracker=scene.tracker,
        save_checkpoint=partial(_save_checkpoint, scene, learner, material.model_folder),
        overlap=config.learner.overlap == "on",
    )
    await driver.train()


def _held_out(config: Config, material: Material) -> list[Prompt]:
    return material.test[: config.eval.problems] if config.eval.problems else material.test


async def _save_checkpoint(scene: Scene, learner: LearnerPool, model_folder: Path, step: int) -> None:
    """The model in Hugging Face format, complete or absent."""
    scene.tracker.phase(f"saving checkpoint of step {step}")
    with scene.folder.checkpoint(step, bytes_needed=_weight_bytes(model_folder)) as folder:
        await learner.save(str(folder))


def _weight_bytes(model_folder: Path) -> int:
    """Size of a model's weights on disk; a checkpoint of it takes about as much."""
    return sum(path.stat().st_size for path in model_folder.glob("*.safetensors"))
