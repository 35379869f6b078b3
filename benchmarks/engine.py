"""Generation speed of the vLLM engine on CPU with the quickstart's prompts, setting by setting.

    python -m benchmarks.engine
    python -m benchmarks.engine --only default block128 --conf gsm8k task.path=DATA model.path=MODEL

Prints sampled tokens per second (prompts included in the time), and the same as a share of what the machine's matrix
product, measured before and after, would allow if nothing else took time.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.gemm import peak_gflops
from benchmarks.report import Report, parser
from rlvr import models, tasks
from rlvr.compose import compose
from rlvr.config import Config
from rlvr.driver.prompts import with_token_ids
from rlvr.engine import cpu
from rlvr.engine.vllm import VllmEngine, VllmOptions
from rlvr.records import Prompt, Sampling
from rlvr.tasks import Sampler

#: Share of the matrix product's limit that the default settings should reach. 250 tokens/s on a machine with
#: 190 GFLOP/s is 0.35 of it.
TARGET = 0.35


SETTINGS: dict[str, Callable[[VllmOptions], VllmOptions]] = {
    "default": lambda options: options,
    "block64": lambda options: replace(options, block_size=64),
    "block128": lambda options: replace(options, block_size=128),
    "one-core": lambda options: replace(options, cores=options.cores[:1]),
}


def main() -> int:
    """Run the settings one after the other."""
    options = parser(__doc__)
    options.add_argument("--conf", default="quickstart")
    options.add_argument("--only", nargs="+", choices=sorted(SETTINGS), default=list(SETTINGS))
    options.add_argument("--steps", type=int, default=4, help="batches of prompts; the first is not counted")
    arguments, overrides = options.parse_known_args()
    steps = 2 if arguments.quick else arguments.steps
    config = compose(arguments.conf, overrides).config
    folder = models.resolve(config.model.path, cache_dir=config.model.cache_dir, hub_timeout_s=10.0, log=_say)
    batches, stop = _batches(config, folder, steps)
    report = Report("engine")
    rows = []
    for name in arguments.only:
        before = peak_gflops()
        tokens, seconds = asyncio.run(_measure(config, folder, SETTINGS[name], batches, stop))
        peak = (before + peak_gflops()) / 2
        share = _flops_per_token(folder) * tokens / seconds / 1e9 / peak
        rows.append({"setting": name, "tokens/s": tokens / seconds, "GEMM GFLOP/s": peak, "share of GEMM": share})
    report.table(f"{config.prompts_per_step} prompts x {config.completions_per_prompt} completions", rows)
    for row in rows:
        report.figure(f"{row['setting']}_tokens_per_s", float(str(row["tokens/s"])), "tokens/s")
        if row["setting"] == "default":
            report.figure("default_share_of_gemm", float(str(row["share of GEMM"])), at_least=TARGET)
    return report.finish(arguments)


async def _measure(
    config: Config,
    folder: Path,
    change: Callable[[VllmOptions], VllmOptions],
    batches: list[list[Prompt]],
    stop: tuple[str, ...],
) -> tuple[int, float]:
    """Tokens sampled and seconds taken, the first batch left out: it touches all memory for the first time."""
    options = VllmOptions(
        name="engine",
        model_folder=str(folder),
        dtype=config.model.dtype,
        max_length=config.model.max_length,
        block_size=config.rollout.block_size,
        kv_cache_gb=config.rollout.kv_cache_gb,
        cores=cpu.machine_cores(),
    )
    engine = VllmEngine(change(options))
    try:
        await engine.start()
        tokens, seconds = 0, 0.0
        for number, batch in enumerate(batches):
            start = time.perf_counter()
            groups = await asyncio.gather(
                *(
                    engine.generate(
                        f"{number}/{index}",
                        prompt.token_ids or (),
                        Sampling(config.rollout.temperature, config.max_new_tokens, seed=index, stop=stop),
                        config.completions_per_prompt,
                    )
                    for index, prompt in enumerate(batch)
                )
            )
            if number:
                seconds += time.perf_counter() - start
                tokens += sum(len(completion.token_ids) for group in groups for completion in group)
        return tokens, seconds
    finally:
        await engine.close()


def _batches(config: Config, folder: Path, steps: int) -> tuple[list[list[Prompt]], tuple[str, ...]]:
    task = tasks.build(config)
    tokenizer = models.load_tokenizer(folder)
    sampler = Sampler(task.train, seed=config.run.seed, balance=config.task.balance)

    def encode(prompt: Prompt) -> tuple[int, ...]:
        return models.encode_prompt(tokenizer, prompt)

    return [
        [with_token_ids(sampler.next(), encode) for _ in range(config.prompts_per_step)] for _ in range(steps)
    ], task.stop


def _flops_per_token(folder: Path) -> float:
    """Multiplications and additions of the weights for one sampled token, the vocabulary's projection included."""
    from safetensors import safe_open

    parameters = 0
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            parameters += sum(_size(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    return 2.0 * parameters


def _size(shape: list[int]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
