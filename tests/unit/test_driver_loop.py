"""The loop with fakes at its edges: what flows where, what is counted, what ends a run."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from rlvr.config import AlgorithmConfig, Config, CriterionConfig, EvalConfig, ModelConfig, RewardConfig, RunConfig
from rlvr.driver.evaluation import Evaluator
from rlvr.driver.loop import Driver
from rlvr.driver.parity import ParityProbe
from rlvr.errors import DataError, InfrastructureError, TrainingError
from rlvr.records import Completion, FinishReason, Group, GroupState, Part, Prompt, Status, Verdict, WeightUpdate

G = 4


class FakeRollout:
    """Answers "right" or "wrong" by position; fails for the prompt ids it was told to."""

    def __init__(self, rights: int = 2, failures: dict[str, Exception] | None = None) -> None:
        self.rights, self.failures, self.version = rights, failures or {}, -1
        self.in_flight = self.most_in_flight = 0
        self.delays = itertools.cycle([0.003, 0.0, 0.001])

    async def generate(self, prompt, sampling, n):
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(next(self.delays))
        self.in_flight -= 1
        if prompt.id in self.failures:
            raise self.failures[prompt.id]
        texts = ["#### 1" if i < self.rights else "#### 2" for i in range(n)]
        return [
            Completion((7, 8), np.full(2, -0.5, np.float32), text, FinishReason.STOP, ((self.version, 2),))
            for text in texts
        ]

    async def sync(self, update):
        self.version = update.version


class FakeReward:
    def __init__(self, unjudged: int = 0) -> None:
        self.unjudged = unjudged

    async def grade(self, group):
        verdicts = []
        for index, completion in enumerate(group.completions):
            score = None if index < self.unjudged else float(completion.text == f"#### {group.prompt.reference}")
            status = Status.VERIFIER_ERROR if score is None else Status.OK if score else Status.WRONG
            verdicts.append(Verdict(score, status, {"answer": Part(score, 1.0, status, "by text")}))
        return verdicts


class FakeReference:
    async def score(self, group, temperature):
        return [completion.logprobs for completion in group.completions]


class FakeLearner:
    def __init__(self, gap: float = 0.0, probe_shift: float = 0.0) -> None:
        self.gap, self.probe_shift = gap, probe_shift
        self.fed: list[list[Group]] = [[]]
        self.published: list[int] = []

    async def feed(self, groups, temperature):
        assert all(group.state is GroupState.READY for group in groups)
        self.fed[-1] += groups

    async def step(self):
        self.fed.append([])
        return {"logprob_gap": self.gap}

    async def publish(self, version):
        self.published.append(version)
        return WeightUpdate(version, f"weights-{version}")

    async def logprobs(self, prompt, completions, temperature):
        return [np.full(len(ids), -0.5 + self.probe_shift, np.float32) for ids in completions]


class FakeTracker:
    def __init__(self) -> None:
        self.steps, self.events, self.evaluations = [], [], []

    def event(self, kind, **fields):
        self.events.append((kind, fields))

    async def step(self, step, groups, learner_stats, time, *, counts, temperature, weight_version):
        self.steps.append((step, list(groups), learner_stats, counts, weight_version))

    def evaluating(self, step, problems):
        self.events.append(("evaluating", {"step": step, "problems": problems}))

    async def evaluation(self, result, groups):
        self.evaluations.append(result)


def make(rollout=None, reward=None, learner=None, reference=None, overlap=False, **changes) -> Driver:
    config = Config(
        prompts_per_step=3,
        completions_per_prompt=G,
        run=RunConfig(steps=2),
        model=ModelConfig(path="none"),
        reward=RewardConfig(criteria={"answer": CriterionConfig(verifier="numeric_answer")}),
        **changes,
    )
    rollout, reward, learner = rollout or FakeRollout(), reward or FakeReward(), learner or FakeLearner()
    tracker = FakeTracker()
    numbers = itertools.count()
    held_out = [Prompt(id=f"t{i}", reference="1", category=f"c{i % 2}", text="?", token_ids=(1,)) for i in range(4)]
    saved: list[int] = []

    async def save(step: int) -> None:
        saved.append(step)

    driver = Driver(
        config=config,
        next_prompt=lambda: Prompt(id=f"p{next(numbers)}", reference="1", text="?", token_ids=(1, 2)),
        stop=("\n\n",),
        rollout=rollout,
        reward=reward,
        learner=learner,
        reference=reference,
        evaluator=Evaluator(config, held_out, (), rollout, reward, tracker),
        probe=ParityProbe(Prompt(id="probe", reference="", text="?", token_ids=(1,))),
        tracker=tracker,
        save_checkpoint=save,
        overlap=overlap,
    )
    driver.saved = saved
    return driver


@pytest.mark.parametrize("overlap", [False, True])
async def test_every_prompt_is_trained_once_and_weights_follow(overlap):
    driver = make(overlap=overlap)
    await driver.train()
    trained = Counter(group.prompt.id for groups in driver.learner.fed for group in groups)
    assert trained == Counter(f"p{i}" for i in range(6))
    assert driver.learner.published == [0, 1, 2]
    assert driver.rollout.version == 2
    assert driver.accounts.counts() == {"issued": 6, "trained": 6, "dropped": 0, "failed": 0, "in_flight": 0}
    assert driver.saved == [2]
    assert [result.step for result in driver.tracker.evaluations] == [0, 2]


async def test_prompts_of_a_step_are_in_flight_together():
    driver = make()
    await driver.train()
    assert driver.rollout.most_in_flight >= 3


async def test_completions_are_sampled_from_the_weights_just_synced():
    driver = make()
    await driver.train()
    versions = [[g.completions[0].weight_versions[0][0] for g in groups] for groups in driver.learner.fed[:2]]
    assert versions == [[0, 0, 0], [1, 1, 1]]


async def test_advantages_are_there_before_the_learner_sees_a_group():
    driver = make()
    await driver.train()
    for group in driver.learner.fed[0]:
        assert group.advantages[0] > 0 > group.advantages[-1]
        assert sum(group.advantages) == pytest.approx(0, abs=1e-6)


async def test_groups_without_a_difference_are_dropped_replaced_within_the_bound_and_counted():
    driver = make(rollout=FakeRollout(rights=G), algorithm=AlgorithmConfig(max_replacements=2))
    with pytest.raises(TrainingError, match="no step trained anything"):
        await driver.train()
    assert driver.accounts.counts() == {"issued": 10, "trained": 0, "dropped": 10, "failed": 0, "in_flight": 0}
    assert driver.accounts.dropped == {"equal_scores": 10}
    assert driver.learner.published == [0], "no step without a gradient"


async def test_a_failed_group_is_counted_and_the_rest_goes_on():
    errors = {"p1": InfrastructureError("engine died"), "p4": DataError("prompt too long")}
    driver = make(rollout=FakeRollout(failures=errors))
    await driver.train()
    counts = driver.accounts.counts()
    assert (counts["trained"], counts["failed"], counts["in_flight"]) == (4, 2, 0)
    assert driver.accounts.failed == {"infrastructure": 1, "data": 1}
    assert {kind for kind, _ in driver.tracker.events} >= {"group_failed", "bad_prompt"}


async def test_failures_beyond_the_budget_end_the_run():
    driver = make(rollout=FakeRollout(failures={f"p{i}": InfrastructureError("engine died") for i in range(99)}))
    driver.config.rollout.max_failed_groups = 2
    driver.__post_init__()
    with pytest.raises(TrainingError, match="engine died"):
        await driver.train()


async def test_when_several_groups_fail_at_once_none_of_them_complains_later():
    complaints = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context["message"]))
    rollout = FakeRollout(failures={f"p{i}": InfrastructureError("engine died") for i in range(99)})
    rollout.delays = itertools.cycle([0.0])
    driver = make(rollout=rollout)
    driver.config.rollout.max_failed_groups = 0
    driver.__post_init__()
    with pytest.raises(TrainingError, match="engine died"):
        await driver.train()
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []


@pytest.mark.parametrize("overlap", [False, True])
async def test_batch_scaled_advantages_wait_for_the_whole_step(overlap):
    driver = make(overlap=overlap, algorithm=AlgorithmConfig(scale="batch_std"))
    calls = []
    feed = driver.learner.feed

    async def counted(groups, temperature):
        calls.append(len(groups))
        await feed(groups, temperature)

    driver.learner.feed = counted
    await driver.train()
    assert calls == [3, 3]
    # Two right of four in every group: +-0.5 around the mean, over a deviation of 0.5 x sqrt(12 / 11).
    advantages = [value for group in driver.learner.fed[0] for value in group.advantages]
    assert sorted(map(abs, advantages)) == pytest.approx([(11 / 12) ** 0.5] * 12, rel=1e-4)


async def test_a_group_of_truncated_completions_is_dropped_when_those_are_masked():
    class Truncated(FakeRollout):
        async def generate(self, prompt, sampling, n):
            completions = await super().generate(prompt, sampling, n)
            cut = FinishReason.LENGTH if prompt.id == "p1" else FinishReason.STOP
            return [replace(completion, finish_reason=cut) for completion in completions]

    driver = make(rollout=Truncated(), algorithm=AlgorithmConfig(mask_truncated=True))
    await driver.train()
    assert driver.accounts.dropped == {"all_truncated": 1}


async def test_unjudged_completions_end_the_run_before_the_learner_steps():
    driver = make(reward=FakeReward(unjudged=2))
    with pytest.raises(TrainingError, match="could not be judged"):
        await driver.train()
    assert len(driver.learner.fed) == 1


async def test_an_unjudged_completion_has_no_advantage_and_does_not_shift_the_baseline():
    driver = make(rollout=FakeRollout(rights=2), reward=FakeReward(unjudged=1))
    driver.config.reward.max_failure_rate = 1.0
    driver.__post_init__()
    await driver.train()
    advantages = driver.learner.fed[0][0].advantages
    assert advantages[0] is None
    assert sum(advantages[1:]) == pytest.approx(0, abs=1e-6)


async def test_a_logprob_gap_above_the_limit_stops_the_run():
    with pytest.raises(TrainingError, match="max_logprob_gap"):
        await make(learner=FakeLearner(gap=0.5)).train()
    with pytest.raises(TrainingError, match="probe prompt"):
        await make(learner=FakeLearner(probe_shift=0.5)).train()


async def test_the_reference_scores_groups_as_they_stream_by():
    driver = make(reference=FakeReference())
    await driver.train()
    assert all(len(group.reference_logprobs) == G for groups in driver.learner.fed for group in groups)


async def test_evaluation_counts_by_number_and_by_criterion_and_per_category():
    driver = make(rollout=FakeRollout(rights=1))
    driver.evaluator.config = replace(driver.config, eval=EvalConfig(samples=2, temperature=1.0))
    result = await driver.evaluator.evaluate(step=0)
    assert result.lenient.value == 0.5
    assert result.strict.value == 0.5
    assert result.strict.n == 4
    assert {name: found.n for name, found in result.strict_by_category.items()} == {"c0": 2, "c1": 2}


async def test_a_machine_failure_ends_an_evaluation_without_a_partial_figure():
    driver = make(rollout=FakeRollout(failures={"t2": InfrastructureError("engine died")}))
    with pytest.raises(InfrastructureError, match="engine died"):
        await driver.evaluator.evaluate(step=0)
    assert driver.tracker.evaluations == []


async def test_cancelling_a_step_leaves_no_task_behind():
    driver = make()
    driver.rollout.delays = itertools.repeat(60)
    driver.config.eval.before = False
    task = asyncio.create_task(driver.train())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [t for t in asyncio.all_tasks() if t is not asyncio.current_task()] == []
