"""The simulated engine: the protocol's promises without a model."""

from __future__ import annotations

import asyncio
import math
import random

import pytest

from rlvr.engine.factory import guess
from rlvr.engine.simulated import Latency, SimulatedEngine
from rlvr.errors import DataError, InfrastructureError, UserError
from rlvr.records import FinishReason, Sampling, WeightUpdate

SAMPLING = Sampling(temperature=1.0, max_new_tokens=32, seed=5)
PROMPT = (1, 2, 3)


async def started(**options: object) -> SimulatedEngine:
    engine = SimulatedEngine("rollout-0", vocab_size=100, **options)  # type: ignore[arg-type]
    await engine.start()
    return engine


async def test_it_says_that_it_is_simulated(caplog: pytest.LogCaptureFixture) -> None:
    engine = await started()
    assert engine.simulated
    assert "SIMULATED" in caplog.text


async def test_a_seed_reproduces_a_group_whose_members_differ() -> None:
    engine, other = await started(), await started()
    first = await engine.generate("a", PROMPT, SAMPLING, 8)
    await other.generate("something else first", (9,), SAMPLING, 3)
    second = await other.generate("b", PROMPT, SAMPLING, 8)
    assert [c.token_ids for c in first] == [c.token_ids for c in second]
    assert len({c.token_ids for c in first}) == 8


async def test_without_a_seed_requests_differ_and_runs_do_not() -> None:
    free = Sampling(temperature=1.0, max_new_tokens=32)

    async def run() -> list[tuple[int, ...]]:
        engine = await started()
        return [(await engine.generate(str(i), PROMPT, free, 1))[0].token_ids for i in range(4)]

    assert len(set(await run())) == 4
    assert await run() == await run()


async def test_token_ids_are_in_the_vocabulary_and_have_a_logprob_each() -> None:
    for completion in await (await started()).generate("a", PROMPT, SAMPLING, 50):
        assert all(0 <= token < 100 for token in completion.token_ids)
        assert completion.logprobs.dtype == "float32"
        assert completion.logprobs.tolist() == pytest.approx([-math.log(100)] * len(completion.token_ids))
        assert 1 <= len(completion.token_ids) <= 32


async def test_lengths_have_a_long_tail_that_the_limit_cuts_off() -> None:
    engine = await started(latency=Latency(length_median=10, length_sigma=1.0))
    group = await engine.generate("a", PROMPT, Sampling(1.0, max_new_tokens=60, seed=0), 500)
    lengths = sorted(len(completion.token_ids) for completion in group)
    assert 7 <= lengths[250] <= 13
    assert lengths[-1] == 60
    assert {c.finish_reason for c in group if len(c.token_ids) < 60} == {FinishReason.STOP}
    assert any(c.truncated for c in group)


async def test_answers_become_text_and_token_ids() -> None:
    engine = await started(answer=lambda ids, chance: f"#### {sum(ids)}", encode=lambda text: [len(text), 7])
    (completion,) = await engine.generate("a", PROMPT, SAMPLING, 1)
    assert (completion.text, completion.token_ids) == ("#### 6", (6, 7))


async def test_answers_need_a_way_to_become_token_ids() -> None:
    with pytest.raises(ValueError, match="encode"):
        SimulatedEngine("rollout-0", 100, answer=lambda ids, chance: "")


async def test_an_update_is_acknowledged_and_shows_in_what_is_written_afterwards() -> None:
    engine = await started()
    assert await engine.update_weights(WeightUpdate(4, "unread")) == 4
    (completion,) = await engine.generate("a", PROMPT, SAMPLING, 1)
    assert completion.weight_versions == ((4, len(completion.token_ids)),)


async def test_a_request_caught_by_an_update_says_both_versions() -> None:
    engine = await started(latency=Latency(seconds_per_token=0.005, length_sigma=0.0))
    running = asyncio.create_task(engine.generate("a", PROMPT, SAMPLING, 1))
    await asyncio.sleep(0.02)
    await engine.update_weights(WeightUpdate(1, "unread"))
    (completion,) = await running
    assert [version for version, _ in completion.weight_versions] == [0, 1]
    assert sum(count for _, count in completion.weight_versions) == len(completion.token_ids)


async def test_thousands_of_groups_at_once() -> None:
    engine = await started(latency=Latency(seconds_per_token=0.0001))
    groups = await asyncio.gather(
        *(engine.generate(str(i), (i,), Sampling(1.0, max_new_tokens=64, seed=i), 2) for i in range(3000))
    )
    assert len(groups) == 3000


async def test_groups_beyond_the_slots_wait() -> None:
    engine = await started(latency=Latency(seconds_per_token=0.001, length_sigma=0.0, slots=1))
    order: list[str] = []

    async def request(name: str) -> None:
        await engine.generate(name, PROMPT, SAMPLING, 1)
        order.append(name)

    await asyncio.gather(*(request(name) for name in "abc"))
    assert order == ["a", "b", "c"]


@pytest.mark.parametrize(("prompt", "limit"), [((), 100), ((1,) * 80, 100)], ids=["empty", "too long"])
async def test_prompts_it_cannot_take_are_data_errors(prompt: tuple[int, ...], limit: int) -> None:
    engine = await started(max_length=limit)
    with pytest.raises(DataError):
        await engine.generate("a", prompt, SAMPLING, 1)


async def test_several_greedy_completions_are_refused() -> None:
    with pytest.raises(UserError, match="greedy"):
        await (await started()).generate("a", PROMPT, Sampling(0.0, max_new_tokens=4), 2)


async def test_before_start_and_after_close_it_is_out_of_service() -> None:
    engine = SimulatedEngine("rollout-0", 100)
    assert not engine.healthy
    with pytest.raises(InfrastructureError, match="rollout-0"):
        await engine.generate("a", PROMPT, SAMPLING, 1)
    await engine.start()
    assert engine.healthy
    await engine.close()
    with pytest.raises(InfrastructureError):
        await engine.update_weights(WeightUpdate(1, "unread"))


def test_guesses_are_right_now_and_then() -> None:
    answers = {guess((1,), random.Random(seed)).rsplit("#### ", 1)[1] for seed in range(400)}
    assert answers == {str(number) for number in range(20)}
