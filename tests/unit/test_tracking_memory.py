"""Peak memory of all processes of a run, however they hide."""

from __future__ import annotations

import mmap
import os
import secrets
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from rlvr.tracking.memory import RUN_ID_VARIABLE, Membership, MemorySampler, Process, processes, pss_bytes, rss_bytes

HOLD = textwrap.dedent(
    """
    import sys
    block = bytearray(int(sys.argv[1]) << 20)
    for index in range(0, len(block), 4096):
        block[index] = 1
    if sys.argv[2] == "titled":
        import setproctitle
        setproctitle.setproctitle("VLLM::EngineCore")
    print("up", flush=True)
    sys.stdin.read()
    """
)


def hold(mebibytes: int, how: str = "plain", **environment: str) -> subprocess.Popen:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(mebibytes), how],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment},
    )  # fmt: skip
    assert child.stdout.readline() == "up\n"
    return child


def end(child: subprocess.Popen) -> None:
    child.stdin.close()
    child.wait()
    child.stdout.close()


@pytest.mark.parametrize("how", ["plain", "titled"])
def test_a_child_counts_while_it_lives_also_when_its_title_ate_its_environment(how):
    if how == "titled":
        pytest.importorskip("setproctitle")
    sampler = MemorySampler(secrets.token_hex(6))
    child = hold(64, how)
    found = sampler.sample()
    end(child)
    assert 64 * 2**20 < found[child.pid] < 128 * 2**20
    assert os.getpid() in found
    assert child.pid not in sampler.sample()
    assert sampler.stop() == sampler.peak_gb == sum(found.values()) / 2**30, "the peak stays"


def test_a_process_that_is_no_descendant_counts_by_its_marker():
    run_id = secrets.token_hex(6)
    child = hold(8, **{RUN_ID_VARIABLE: run_id})
    other = hold(8, **{RUN_ID_VARIABLE: "another"})
    try:
        sampler = MemorySampler(run_id)
        members = Membership(root=-1, has_marker=sampler._members.has_marker).of(processes())
        assert members == [child.pid]
    finally:
        end(child)
        end(other)


def test_membership_is_inherited_kept_by_orphans_and_forgotten_with_the_process():
    asked: list[int] = []
    membership = Membership(root=10, has_marker=lambda pid: asked.append(pid) or pid == 40)
    family = [
        Process(12, 1, 11),
        Process(11, 1, 10),
        Process(10, 1, 1),
        Process(40, 1, 1),
        Process(41, 1, 40),
        Process(7, 1, 1),
    ]
    assert membership.of(family) == [10, 11, 12, 40, 41]
    orphaned = [Process(12, 1, 1), Process(10, 1, 1), Process(7, 1, 1)]
    assert membership.of(orphaned) == [10, 12]
    reused = [Process(12, 99, 1), Process(10, 1, 1)]
    assert membership.of(reused) == [10]
    for _ in range(20):
        membership.of([Process(10, 1, 1), Process(7, 1, 1)])
    assert asked.count(7) < 20, "strangers are not asked for ever"


def test_shared_pages_count_once():
    block = mmap.mmap(-1, 256 << 20)
    for index in range(0, len(block), 4096):
        block[index] = 1
    sampler = MemorySampler(secrets.token_hex(6))
    alone = sum(sampler.sample().values())
    child = os.fork()
    if child == 0:
        sum(block[index] for index in range(0, len(block), 4096))  # a page is resident where it was touched
        signal.pause()
        os._exit(0)
    try:
        while rss_bytes(child) < 256 << 20:
            time.sleep(0.01)
        together = sum(sampler.sample().values())
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        block.close()
    assert together < alone + (128 << 20)


def test_growth_is_seen_by_the_thread():
    sampler = MemorySampler(secrets.token_hex(6), period_s=0.01)
    sampler.start()
    before = sampler.peak_gb
    child = hold(160)
    while sampler.peak_gb < before + 0.1:  # the test's own deadline ends this if it never happens
        time.sleep(0.01)
    end(child)
    assert sampler.stop() > 0.15


def test_processes_that_are_gone_have_no_memory():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert pss_bytes(child.pid) == rss_bytes(child.pid) == 0
