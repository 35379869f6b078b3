"""wandb for real: offline without any network, online without a key or a server that helps."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import textwrap
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("wandb")

KEY = "0123456789abcdef0123456789abcdef01234567"

PROGRAM = textwrap.dedent(
    """
    import os, sys
    from pathlib import Path
    from rlvr.errors import UserError
    from rlvr.tracking.wandb_run import open_wandb
    mode, folder = sys.argv[1:]
    try:
        run = open_wandb(mode, project="p", run_id="abc123", name="n", folder=Path(folder),
                         config={"run": {"steps": 3}}, job_type="train")
    except UserError as error:
        print("refused:", error)
    else:
        run.log({"step": 1, "reward/mean": 0.25, "learner/kl": float("nan")}, step=1)
        run.log({"step": 2, "reward/mean": 0.75}, step=2)
        run.summarise({"status": "completed", "accuracy_after": {"value": 0.5}, "error": None})
        run.finish(0)
        print("recorded")
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    print("children:", children)
    """
)


def run(mode: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: wandb keeps a service and settings for the life of a process."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, mode, str(folder)],
        env={**inherited, "HOME": str(home), "NETRC": str(home / "netrc"), "no_proxy": "127.0.0.1", **environment},
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_offline_records_inside_the_run_folder(tmp_path):
    process = run("offline", tmp_path, WANDB_API_KEY=KEY)
    assert process.returncode == 0, process.stderr
    assert "recorded" in process.stdout
    assert "children: []" in process.stdout, "no process of wandb is left"
    (record,) = tmp_path.glob("wandb/offline-run-*-abc123/run-abc123.wandb")
    assert history(record) == [{"reward/mean": 0.25, "_step": 1}, {"reward/mean": 0.75, "_step": 2}]
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in written if KEY.encode() in path.read_bytes()]
    assert KEY not in process.stdout + process.stderr


def test_online_without_a_key_says_what_to_do(tmp_path):
    process = run("online", tmp_path)
    assert "refused: track.wandb=online needs a key" in process.stdout
    assert "wandb login" in process.stdout
    assert "track.wandb=offline" in process.stdout
    assert "children: []" in process.stdout


def test_online_without_a_server_says_what_to_do(tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and never listened on: connections are refused
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        process = run("online", tmp_path, WANDB_API_KEY=KEY, WANDB_BASE_URL=url)
    assert f"refused: track.wandb=online, but {url} did not answer" in process.stdout
    assert "Connection refused" in process.stdout
    assert "children: []" in process.stdout


class Refusing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        body = json.dumps({"errors": [{"message": "user is not logged in"}]}).encode()
        self.send_response(401)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *args: object) -> None:
        """Not in the test's output."""


def test_a_refused_key_is_reported_without_showing_it(tmp_path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        process = run("online", tmp_path, WANDB_API_KEY=KEY, WANDB_BASE_URL=url)
    finally:
        server.shutdown()
        server.server_close()
    assert "refused: wandb did not start (track.wandb=online)" in process.stdout, process.stdout + process.stderr
    assert KEY not in process.stdout + process.stderr
    assert "children: []" in process.stdout


def history(record: Path) -> list[dict[str, float]]:
    """The metrics in the file that wandb wrote, as its format (a LevelDB log of protobuf records) has them."""
    from wandb.proto import wandb_internal_pb2

    found = []
    for payload in log_records(record.read_bytes()):
        entry = wandb_internal_pb2.Record()
        entry.ParseFromString(payload)
        if entry.WhichOneof("record_type") == "history":
            items = {"/".join(item.nested_key) or item.key: item for item in entry.history.item}
            found.append({name: json.loads(items[name].value_json) for name in ("reward/mean", "_step")})
    return found


def log_records(content: bytes) -> list[bytes]:
    """LevelDB's log format: blocks of 32 KiB with chunks (checksum, length, full|first|middle|last); 7 bytes ahead."""
    block, position, parts, records = 32768, 7, [], []
    while position + 7 <= len(content):
        if block - position % block < 7:
            position += block - position % block
            continue
        length, kind = struct.unpack_from("<HB", content, position + 4)
        parts.append(content[position + 7 : position + 7 + length])
        position += 7 + length
        if kind in (1, 4):
            records.append(b"".join(parts))
            parts = []
    return records
