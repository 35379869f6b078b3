"""Where computing processes get their memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rlvr.allocator import allocator_environment


def test_whoever_set_a_variable_has_decided() -> None:
    assert allocator_environment({"PATH": "/bin"})
    assert allocator_environment({"GLIBC_TUNABLES": "glibc.malloc.arena_max=1"}) == {}
    assert allocator_environment({"MALLOC_TRIM_THRESHOLD_": "1"}) == {}


def test_a_process_started_with_it_keeps_freed_memory() -> None:
    if os.confstr("CS_GNU_LIBC_VERSION") is None:
        pytest.skip("not glibc")
    script = (
        "import ctypes\n"
        "libc = ctypes.CDLL(None)\n"
        "libc.malloc.restype = ctypes.c_void_p\n"
        "libc.free.argtypes = [ctypes.c_void_p]\n"
        "def resident():\n"
        "    return int(open('/proc/self/statm').read().split()[1]) * 4096\n"
        "block = libc.malloc(200 * 2**20)\n"
        "ctypes.memset(block, 1, 200 * 2**20)\n"
        "libc.free(block)\n"
        "print(resident())\n"
    )
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    kept, given_back = (
        int(subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True).stdout)
        for env in (plain | allocator_environment(plain), plain)
    )
    assert kept > 200 * 2**20 > given_back
