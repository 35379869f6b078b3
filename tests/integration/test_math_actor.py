"""Symbolic answers in reward actors: the same verdicts as in this process, bombs included, and nothing left behind."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rlvr.actors.reward import RewardPool
from rlvr.records import Status
from rlvr.rewards import Sample
from rlvr.rewards.math_answer import math_answer
from tests.integration.test_reward_actor import NAMESPACE, cluster, configured, group

__all__ = ["cluster"]
pytestmark = pytest.mark.timeout(180)

ANSWERS = ("\\sqrt8", "2\\sqrt{2}", "2.828427", "2\\sqrt2, 3", "9^{9^{9^9}}", "e^{e^{e^{e^{e}}}}", "\\sqrt{32}/2", "no")


async def test_an_actor_gives_the_same_verdicts_and_its_children_end_with_it(cluster: None) -> None:
    texts = [f"\\boxed{{{answer}}}" for answer in ANSWERS]
    here = [math_answer(Sample(text, "2\\sqrt{2}")) for text in texts]
    before = symbolic_children()
    pool = RewardPool(configured("math_answer"), NAMESPACE)
    await pool.start()
    try:
        there = await pool.grade(group(*texts, reference="2\\sqrt{2}"))
        started = symbolic_children() - before
        assert started
    finally:
        await pool.close()
    assert [(v.score, v.status, v.extracted) for v in there] == [(v.score, v.status, v.extracted) for v in here]
    assert [v.score for v in there] == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    assert there[5].status is Status.TIMEOUT
    deadline = time.monotonic() + 30
    while started & symbolic_children():
        assert time.monotonic() < deadline, "a symbolic child outlives its actor"
        time.sleep(0.1)


def symbolic_children() -> set[int]:
    """Process ids of all symbolic children of this machine."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"rlvr.rewards.symbolic_child" in (folder / "cmdline").read_bytes():
                found.add(int(folder.name))
        except OSError:
            continue
    return found
