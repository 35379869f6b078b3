"""What a configuration may say: ranges of single keys, and sense across keys. Pure; reports every problem at once.

Types and allowed words are settled by the schema before. Whether this machine can do it (is there a GPU?) is
asked in `rlvr.launch.machine`, and what the data or the model say is found where they are read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

from rlvr import schema
from rlvr.config import Config, SandboxConfig
from rlvr.schema import Key

#: Zero makes no sense for these. Every other number may be zero, and none may be negative but SIGNED.
POSITIVE = frozenset(
    {
        "prompts_per_step",
        "max_new_tokens",
        "run.steps",
        "run.start_timeout_s",
        "model.hub_timeout_s",
        "task.arithmetic.train_size",
        "task.arithmetic.test_size",
        "task.functions.tests",
        "task.functions.train_size",
        "task.functions.test_size",
        "reward.workers",
        "reward.processes",
        "reward.timeout_s",
        "rollout.engines",
        "rollout.temperature",
        "rollout.temperature_end",
        "rollout.top_p",
        "rollout.max_concurrent_prompts",
        "rollout.block_size",
        "rollout.kv_cache_gb",
        "rollout.gpu_memory_share",
        "rollout.request_timeout_s",
        "rollout.sync_timeout_s",
        "algorithm.clip_low",
        "algorithm.clip_high",
        "algorithm.correction.high",
        "learner.ranks",
        "learner.lr",
        "learner.max_grad_norm",
        "learner.tokens_per_microbatch",
        "learner.logits_chunk",
        "learner.step_timeout_s",
        "eval.samples",
    }
)
#: A criterion may count against the score.
SIGNED = frozenset({f"reward.criteria.{schema.WILDCARD}.weight"})
AT_MOST: dict[str, float] = {
    "reward.max_failure_rate": 1,
    "rollout.top_p": 1,
    "rollout.gpu_memory_share": 1,
    "learner.zero_stage": 3,
    "cluster.dashboard_port": 65535,
    "algorithm.clip_low": 1,  # 1: no lower bound, a ratio is never negative
}
BELOW: dict[str, float] = {"learner.beta1": 1, "learner.beta2": 1}

#: (ZeRO stage, model.dtype) that the learner cannot run, with the reason.
UNSUPPORTED_ZERO: dict[tuple[int, str], str] = {
    (0, "bfloat16"): "DeepSpeed adds up gradients in bfloat16 there; take learner.zero_stage=1, which keeps float32",
}

#: Verifiers that run programs of completions, in the sandbox.
SANDBOXED = ("python", "test_suite")

_MODULE_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def check(config: Config) -> list[str]:
    """Every problem of `config`, as sentences that name the key. [] when there is none."""
    return [problem for rule in _RULES for problem in rule(config)]


def _numbers(config: Config) -> Iterator[str]:
    for key in schema.leaves():
        for name, value in _values(config, key):
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                yield from _number(name, key.name, value)


def _values(config: Config, key: Key) -> Iterator[tuple[str, Any]]:
    if schema.WILDCARD not in key.path:
        yield key.name, schema.value_at(config, key.path)
        return
    at = key.path.index(schema.WILDCARD)
    for name in schema.value_at(config, key.path[:at]):
        path = (*key.path[:at], name, *key.path[at + 1 :])
        yield ".".join(path), schema.value_at(config, path)


def _number(name: str, declared: str, value: float) -> Iterator[str]:
    if not math.isfinite(value):
        yield f"{name} must be a finite number, got {value}"
    elif declared in POSITIVE and value <= 0:
        yield f"{name} must be greater than 0, got {value}"
    elif value < 0 and declared not in SIGNED:
        yield f"{name} must not be negative, got {value}"
    elif declared in AT_MOST and value > AT_MOST[declared]:
        yield f"{name} must be at most {AT_MOST[declared]:g}, got {value}"
    elif declared in BELOW and value >= BELOW[declared]:
        yield f"{name} must be below {BELOW[declared]:g}, got {value}"


def _step(config: Config) -> Iterator[str]:
    if config.completions_per_prompt < 2:
        yield (
            f"completions_per_prompt must be at least 2, got {config.completions_per_prompt}: "
            "a group of one has nothing to be better than"
        )
    prompts, ranks = config.prompts_per_step, config.learner.ranks
    if ranks > 0 and prompts % ranks:
        below, above = prompts - prompts % ranks, prompts - prompts % ranks + ranks
        choice = f"{below} or {above}" if below else f"{above}"
        yield f"prompts_per_step ({prompts}) cannot be shared equally by learner.ranks ({ranks}): take {choice}"


def _run(config: Config) -> Iterator[str]:
    if "/" in config.run.name or config.run.name in (".", ".."):
        yield f"run.name is a name, not a path, got {config.run.name!r}: run.dir takes a path"
    if config.learner.warmup_steps > config.run.steps:
        yield (
            f"learner.warmup_steps ({config.learner.warmup_steps}) is more than run.steps ({config.run.steps}): "
            "the learning rate would never be reached"
        )


def _lengths(config: Config) -> Iterator[str]:
    limit = config.model.max_length
    if not limit:
        return  # the model's own limit is known once the model is opened
    for name, tokens in (
        ("max_new_tokens", config.max_new_tokens),
        ("eval.max_new_tokens", config.eval.max_new_tokens),
    ):
        if tokens >= limit:
            yield f"{name} ({tokens}) leaves no room for a prompt in model.max_length ({limit})"
    prompt = config.task.max_prompt_tokens
    if config.max_new_tokens < limit < prompt + config.max_new_tokens:
        yield (
            f"task.max_prompt_tokens ({prompt}) and max_new_tokens ({config.max_new_tokens}) together are more than "
            f"model.max_length ({limit})"
        )


def _task(config: Config) -> Iterator[str]:
    task = config.task
    if task.name in ("jsonl", "hub") and not task.path:
        what = "a folder or .jsonl file" if task.name == "jsonl" else "the id of a data set"
        yield f"task.path must be set for task.name={task.name}: {what}"
    if task.categorise not in ("", "difficulty", "operators") and not _MODULE_FUNCTION.fullmatch(task.categorise):
        yield f"task.categorise must be difficulty, operators or module:function, got {task.categorise!r}"
    if task.name == "arithmetic":
        yield from _arithmetic(config)
    if any(not text for text in task.stop):
        yield "task.stop holds an empty text, which would end every completion at once"


def _arithmetic(config: Config) -> Iterator[str]:
    arithmetic = config.task.arithmetic
    if not arithmetic.operations:
        yield "task.arithmetic.operations is empty: name at least one"
    if not arithmetic.difficulties:
        yield "task.arithmetic.difficulties is empty: name at least one of 1, 2, 3, 4"
    for difficulty in arithmetic.difficulties:
        if not 1 <= difficulty <= 4:
            yield f"task.arithmetic.difficulties go from 1 to 4, got {difficulty}"
    if config.task.few_shot.k >= arithmetic.train_size > 0:
        yield (
            f"task.few_shot.k ({config.task.few_shot.k}) takes all of task.arithmetic.train_size "
            f"({arithmetic.train_size}): nothing is left to train on"
        )


def _reward(config: Config) -> Iterator[str]:
    criteria = config.reward.criteria
    if not criteria:
        yield "reward.criteria is empty: name at least one, as in reward.criteria.answer.verifier=numeric_answer"
    elif all(criterion.weight == 0 for criterion in criteria.values()):
        yield "reward.criteria all have weight 0: every score would be 0"
    for name, criterion in criteria.items():
        if ":" in criterion.verifier and not _MODULE_FUNCTION.fullmatch(criterion.verifier):
            yield f"reward.criteria.{name}.verifier must be a name or module:function, got {criterion.verifier!r}"
    runs_programs = any(c.verifier in SANDBOXED or ":" in c.verifier for c in criteria.values())
    if config.reward.sandbox != SandboxConfig() and not runs_programs:
        yield f"reward.sandbox has no effect: no criterion runs programs ({', '.join(SANDBOXED)})"


def _rollout(config: Config) -> Iterator[str]:
    rollout = config.rollout
    if 0 < rollout.top_p < 1:
        yield (
            f"rollout.top_p must be 1 for training, got {rollout.top_p}: the learner cannot cut its distribution to "
            "the same nucleus yet, so its probabilities would not be those that were sampled from"
        )
    if rollout.max_staleness > 0:
        yield (
            f"rollout.max_staleness must be 0 in this version, got {rollout.max_staleness}: "
            "training on completions of older weights is not there yet"
        )


def _algorithm(config: Config) -> Iterator[str]:
    algorithm = config.algorithm
    if 0 < algorithm.dual_clip <= 1:
        yield f"algorithm.dual_clip must be above 1 (3 is usual), or 0 for none, got {algorithm.dual_clip}"
    correction = algorithm.correction
    if correction.kind in ("masked", "sequence_masked") and correction.low >= correction.high:
        yield f"algorithm.correction.low ({correction.low}) must be below algorithm.correction.high ({correction.high})"
    if algorithm.overlong.margin_tokens > config.max_new_tokens:
        yield (
            f"algorithm.overlong.margin_tokens ({algorithm.overlong.margin_tokens}) is more than max_new_tokens "
            f"({config.max_new_tokens}): every completion would be punished for its length"
        )
    if algorithm.scale == "batch_std" and config.learner.overlap == "on":
        yield (
            "learner.overlap=on with algorithm.scale=batch_std: advantages are known only when the step is complete, "
            "so nothing can be learned earlier; take learner.overlap=auto"
        )


def _learner(config: Config) -> Iterator[str]:
    reason = UNSUPPORTED_ZERO.get((config.learner.zero_stage, config.model.dtype))
    if reason is not None:
        yield f"learner.zero_stage={config.learner.zero_stage} with model.dtype={config.model.dtype}: {reason}"


def _evaluation(config: Config) -> Iterator[str]:
    if config.eval.temperature == 0 and config.eval.samples > 1:
        yield (
            f"eval.samples ({config.eval.samples}) must be 1 with eval.temperature=0: "
            "greedy completions of a prompt are all the same"
        )


def _cluster(config: Config) -> Iterator[str]:
    address = config.cluster.address
    if address and address != "auto" and not re.fullmatch(r"[^\s:/]+:\d+", address):
        yield f"cluster.address must be auto or host:port, got {address!r}"


_RULES: tuple[Callable[[Config], Iterator[str]], ...] = (
    _numbers,
    _step,
    _run,
    _lengths,
    _task,
    _reward,
    _rollout,
    _algorithm,
    _learner,
    _evaluation,
    _cluster,
)
