"""Is a program really confined? Hostile programs are run and must fail; harmless ones must work.

The level that a sandbox has is what this finds, on this machine, at this start: whether some tool is installed, or a
kernel is new enough, says nothing. Each probe is a program with one function, `probe`, that returns what it reached,
or None; it must do no harm where it succeeds. Must not know by which means programs are confined.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.errors import InfrastructureError
from rlvr.sandbox.levels import Level
from rlvr.sandbox.owner import Limits, Ran, Sandbox

_LIMITS = Limits(cpu_s=4, wall_s=8.0, message_bytes=2**16)
#: What is made to use it up shall not take long.
_SHORT = Limits(cpu_s=0.3, wall_s=0.5, message_bytes=2**16)
#: A program that is done with it has more memory than it should.
_FAR_TOO_MUCH_MB = 4 * _LIMITS.memory_mb


@dataclass(frozen=True)
class Finding:
    """What one probe did."""

    name: str
    kind: str
    """limit, reach, privacy (what namespaces add) or harmless."""
    held: bool
    detail: str = ""


@dataclass(frozen=True)
class Measured:
    """What is known of a sandbox after all probes."""

    level: Level
    findings: tuple[Finding, ...]

    def failures(self) -> list[str]:
        """Probes that did not come out as they should, privacy apart."""
        return [f"{one.name}: {one.detail}" for one in self.findings if not one.held and one.kind != "privacy"]


def measure(sandbox: Sandbox) -> Measured:
    """Run every probe. Raises InfrastructureError when right programs do not run: then nothing can be judged."""
    with _bait() as values:
        findings = [_run(sandbox, name, source, values) for name, source in _PROBES.items()]
    broken = [one for one in findings if one.kind == "harmless" and not one.held]
    if broken:
        shown = "; ".join(f"{one.name}: {one.detail}" for one in broken)
        raise InfrastructureError(f"right programs do not run in the sandbox here ({shown})")
    missed = {one.kind for one in findings if not one.held}
    if "limit" in missed:
        level = Level.NONE
    elif "reach" in missed:
        level = Level.LIMITS
    else:
        level = Level.CONFINED if "privacy" in missed else Level.NAMESPACES
    return Measured(level, tuple(findings))


@contextlib.contextmanager
def _bait() -> Iterator[dict[str, Any]]:
    """What a program must not find: this file, a listening port and an abstract socket of this process.

    Nothing is made on disk: a probe that is killed leaves nothing behind.
    """
    name = f"rlvr-{secrets.token_hex(8)}"
    with contextlib.ExitStack() as held:
        port = held.enter_context(socket.create_server(("127.0.0.1", 0)))
        abstract = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        abstract.bind(f"\0{name}")
        abstract.listen(1)
        yield {
            "PORT": port.getsockname()[1],
            "NAME": name,
            "OWNER": os.getpid(),
            "THREAD": threading.get_native_id(),
            "FILE": str(Path(__file__).resolve()),
        }


def _run(sandbox: Sandbox, title: str, source: str, values: dict[str, Any]) -> Finding:
    kind, _, name = title.partition("/")
    lines = [f"{key} = {value!r}" for key, value in values.items()]
    code = "\n".join([*lines, _PRELUDE, textwrap.dedent(source)])
    reply: dict[str, Any] = {}
    with sandbox.program(_SHORT if kind == "limit" else _LIMITS) as program, contextlib.suppress(EOFError, ValueError):
        program.send({"do": "calls", "code": code})
        program.send({"calls": [["probe", {"t": []}, {"d": []}]]})
        reply = program.receive()
        if reply.get("loaded"):
            reply = program.receive()
    ran = program.ran
    if ran is None:
        raise InfrastructureError("a probe has not ended")
    if kind == "harmless":
        held = reply.get("value") == "fine"
        return Finding(name, kind, held, str(reply.get("why", reply)) if reply else ran.cause.value)
    if kind == "limit":
        return Finding(name, kind, *_limit_held(reply, ran))
    reached = "value" in reply and reply["value"] is not None
    return Finding(name, kind, not reached, str(reply.get("value")) if reached else "")


def _limit_held(reply: dict[str, Any], ran: Ran) -> tuple[bool, str]:
    if "value" in reply and reply["value"] is not None:
        return False, str(reply["value"])
    if ran.memory_mb > _FAR_TOO_MUCH_MB:
        return False, f"it had {ran.memory_mb:.0f} MB"
    # The kernel's own limit is the last resort, where the zygote gets no processor to look.
    return ran.cpu_s < _SHORT.cpu_s + 3, f"{ran.cause.value}, {ran.cpu_s:.1f} s"


_PRELUDE = """
import os

def attempt(*steps):
    for step in steps:
        try:
            found = step()
        except (OSError, ImportError, AttributeError, ValueError, MemoryError, RuntimeError):
            continue
        if found is not None:
            return repr(found)[:100]
    return None

def call(name, *arguments):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    converted = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = getattr(libc, name)(*converted)
    return None if result == -1 else f"{name} returned {result}"
"""

_PROBES = {
    "harmless/imports": """
        def probe():
            import asyncio, bisect, collections, csv, ctypes, dataclasses, datetime, decimal, fractions, functools
            import hashlib, heapq, html, io, itertools, json, logging, math, operator, pickle, random, re, statistics
            import string, textwrap, threading, typing, unittest, uuid, zlib, xml.etree.ElementTree, concurrent.futures
            assert json.loads("[1.5]") == [1.5] and next(csv.reader(["a,b"])) == ["a", "b"]
            assert hashlib.sha256(b"").hexdigest().startswith("e3b0") and "é".encode("latin-1") == bytes([233])
            return "fine"
    """,
    "harmless/threads": """
        import asyncio, concurrent.futures, sys, threading

        def deep(n):
            return 0 if n == 0 else 1 + deep(n - 1)

        def probe():
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                assert list(pool.map(lambda x: x * x, range(8)))[7] == 49
            sys.setrecursionlimit(20000)
            threading.stack_size(2**26)
            results = []
            thread = threading.Thread(target=lambda: results.append(deep(10000)))
            thread.start()
            thread.join()
            async def later():
                await asyncio.sleep(0)
                return 7
            assert results == [10000] and asyncio.run(later()) == 7
            return "fine"
    """,
    "limit/processor": "def probe():\n    while True:\n        pass",
    "limit/clock": """
        def probe():
            import time
            time.sleep(600)
            return "slept"
    """,
    "limit/memory": """
        def probe():
            hoard, size = [], 0
            try:
                while size < 4096:
                    hoard.append(bytearray(2**24))
                    size += 16
            except MemoryError:
                return None
            return f"{size} MB"
    """,
    "limit/processes": """
        def probe():
            return attempt(lambda: os.fork() or os._exit(0), lambda: os.system("true") == 0 or None,
                           lambda: os.posix_spawn("/bin/true", ["true"], {}))
    """,
    "limit/threads": """
        def probe():
            import _thread, time
            started = 0
            try:
                _thread.stack_size(2**15)
                while started < 400:
                    _thread.start_new_thread(time.sleep, (0.3,))
                    started += 1
            except RuntimeError:
                return None
            return f"{started} threads"
    """,
    "limit/descriptors": """
        def probe():
            count = 0
            try:
                while count < 5000:
                    os.pipe()
                    count += 2
            except OSError:
                return None
            return f"{count} descriptors"
    """,
    "limit/rights_to_limits": """
        import resource

        def probe():
            for limit in (resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE):
                try:
                    resource.setrlimit(limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                except (OSError, ValueError):
                    continue
                return f"limit {limit}"
    """,
    "reach/file": "def probe():\n    return attempt(lambda: open(FILE).read(9), lambda: os.listdir('/'))",
    "reach/system_files": """
        def probe():
            return attempt(*[lambda p=p: open(p, "rb").read(1) for p in (
                "/etc/passwd", "/etc/shadow", "/etc/hostname", "/proc/version", "/sys/kernel/ostype", "/dev/zero")])
    """,
    "reach/by_descriptors": """
        def probe():
            found = []
            for number in range(3, 64):
                for name in (f"/proc/self/fd/{number}/..", f"/dev/fd/{number}"):
                    found.append(lambda n=name: os.listdir(n))
                found.append(lambda n=number: os.open("..", os.O_RDONLY, dir_fd=n))
                found.append(lambda n=number: os.listdir(n))
            return attempt(*found, lambda: os.open("../../../etc/passwd", os.O_RDONLY))
    """,
    "reach/write": """
        def probe():
            def folder(place):
                os.mkdir(place + "/rlvr-escape")
                os.rmdir(place + "/rlvr-escape")
                return "mkdir"
            return attempt(lambda: os.open(FILE, os.O_WRONLY), lambda: open(FILE, "r+").fileno(),
                *[lambda d=d: os.open(d, os.O_TMPFILE | os.O_RDWR) for d in ("/tmp", "/dev/shm", "/var/tmp", "/", ".")],
                *[lambda d=d: folder(d) for d in ("/tmp", "/dev/shm", ".", "/proc/self/cwd")],
                lambda: os.utime(FILE, ns=(os.stat(FILE).st_atime_ns, os.stat(FILE).st_mtime_ns)) or "utime",
                lambda: os.rename(FILE, FILE) or "rename", lambda: os.memfd_create("escape"))
    """,
    "reach/environment": """
        def probe():
            return next(iter(os.environ), None)
    """,
    "reach/memory_of_others": """
        def probe():
            return attempt(*[lambda p=p, f=f: open(f"/proc/{p}/{f}", "rb").read(1)
                             for p in (OWNER, os.getppid(), 1) for f in ("mem", "environ", "cmdline", "maps")])
    """,
    "reach/ptrace": "def probe():\n    return call('ptrace', 0x4206, OWNER, 0, 0)",
    "reach/read_process": """
        def probe():
            import ctypes
            return call("process_vm_readv", OWNER, ctypes.create_string_buffer(16), 0, 0, 0, 0)
    """,
    "reach/signal_owner": "def probe():\n    return attempt(lambda: os.kill(OWNER, 0) or 'signalled')",
    "reach/signal_zygote": "def probe():\n    return attempt(lambda: os.kill(os.getppid(), 0) or 'signalled')",
    "reach/signal_thread": "def probe():\n    return call('tgkill', OWNER, THREAD, 0)",
    "reach/signal_all": "def probe():\n    return attempt(lambda: os.kill(-1, 0) or 'signalled')",
    "reach/signal_group": "def probe():\n    return attempt(lambda: os.killpg(os.getpgid(OWNER), 0) or 'signalled')",
    "reach/network": """
        import socket

        def probe():
            return attempt(lambda: socket.create_connection(("127.0.0.1", PORT), 1),
                lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
                lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 53)),
                lambda: socket.socket(socket.AF_INET6, socket.SOCK_STREAM),
                lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1), lambda: socket.socket(16, 3, 0),
                lambda: socket.create_server(("127.0.0.1", 0)))
    """,
    "reach/abstract_socket": """
        import socket

        def probe():
            def plain():
                with socket.socket(socket.AF_UNIX) as one:
                    return one.connect("\\0" + NAME) or "connected"
            def by_pair():
                one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
                return one.sendto(b"x", "\\0" + NAME)
            return attempt(plain, by_pair, lambda: socket.socket(40, 1))
    """,
    "reach/become_root": """
        def probe():
            return attempt(lambda: os.getuid() == 0 and open("/etc/shadow").read(1) or None,
                lambda: os.setuid(0) or "setuid", lambda: os.setresuid(0, 0, 0) or "setresuid")
    """,
    "reach/groups": "def probe():\n    return attempt(lambda: os.setgroups([0]) or 'setgroups')",
    "reach/execute": """
        def probe():
            import subprocess
            return attempt(lambda: subprocess.run(["/bin/sh", "-c", "id"], capture_output=True).stdout,
                           lambda: subprocess.run(["/usr/bin/passwd", "-S"], capture_output=True).stdout,
                           lambda: os.execv("/bin/true", ["true"]))
    """,
    "reach/mount": "def probe():\n    return call('syscall', 430, b'tmpfs', 0)",
    "reach/unshare": "def probe():\n    return call('unshare', 0x10000000)",
    "reach/chroot": "def probe():\n    return attempt(lambda: os.chroot('/') or 'chroot')",
    "reach/shared_memory": """
        def probe():
            import ctypes
            return call("msgctl", 0, 3, ctypes.create_string_buffer(256))
    """,
    "reach/keys": """
        def probe():
            import ctypes
            return call("syscall", {"x86_64": 250, "aarch64": 219}[os.uname().machine], 0, -3, 0)
    """,
    "reach/bpf": """
        def probe():
            import ctypes
            return call("syscall", {"x86_64": 321, "aarch64": 280}[os.uname().machine], 0,
                        ctypes.create_string_buffer(128), 128)
    """,
    "reach/devices": """
        def probe():
            return attempt(lambda: os.open("/dev/kmsg", os.O_RDONLY), lambda: os.open("/dev/tty", os.O_RDWR),
                           lambda: os.open("/dev/mem", os.O_RDONLY), lambda: os.open("/dev/null", os.O_RDWR))
    """,
    "reach/outlive": """
        def probe():
            import ctypes, signal
            return attempt(lambda: call("prctl", 1, 0, 0, 0, 0), lambda: call("prctl", 36, 1, 0, 0, 0))
    """,
    "reach/library": """
        import sys

        def probe():
            memory = next((f for f in sys.meta_path if hasattr(f, "_all")), None)
            def overwrite():
                import ctypes
                memory._all[0] = 0
            def by_address():
                import ctypes
                view = (ctypes.c_void_p * 16)()
                ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(memory._all), view, 0)
                mprotect = ctypes.CDLL(None).mprotect
                return mprotect(ctypes.c_void_p(view[0]), ctypes.c_size_t(4096), 3) == 0 or None
            try:
                overwrite()
            except TypeError:
                return attempt(by_address)
            return "overwritten"
    """,
    "privacy/processes": "def probe():\n    return os.getppid() if os.getppid() != 1 else None",
    "privacy/network": """
        import socket

        def probe():
            return attempt(lambda: [name for _, name in socket.if_nameindex() if name != "lo"] or None) or (
                None if os.getppid() == 1 else "the host's")
    """,
}
