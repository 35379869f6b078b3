"""The few calls to Linux that Python has no function for. Raises OSError as Python's own functions do."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from functools import cache

_LIBC = ctypes.CDLL(None, use_errno=True)

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 0x2, 0x4, 0x8, 0x4000, 0x40000

_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x20080522
# Made once, not in each program's process.
_CAPABILITY_HEADER = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0))
_NO_CAPABILITIES = ctypes.create_string_buffer(24)


@cache
def machine() -> str:
    """The processor architecture. Raises OSError (ENOSYS) where the sandbox has no tables for it."""
    name = platform.machine()
    if sys.platform != "linux" or name not in _SYS_CAPSET:
        raise OSError(errno.ENOSYS, f"the sandbox knows Linux on x86_64 and aarch64, not {sys.platform} on {name}")
    return name


def syscall(number: int, *arguments: object) -> int:
    """A system call by number; integers and pointers are passed as 64 bits."""
    converted = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = int(_LIBC.syscall(ctypes.c_long(number), *converted))
    if result < 0:
        raise _error()
    return result


def prctl(option: int, value: int | ctypes.c_void_p = 0, third: int | ctypes.c_void_p = 0) -> None:
    """prctl(2)."""
    arguments = [ctypes.c_ulong(item) if isinstance(item, int) else item for item in (value, third)]
    if _LIBC.prctl(option, *arguments, ctypes.c_ulong(0), ctypes.c_ulong(0)) < 0:
        raise _error()


def unshare(flags: int) -> None:
    """unshare(2)."""
    if _LIBC.unshare(ctypes.c_int(flags)) < 0:
        raise _error()


def mount(source: str, target: str, kind: str, flags: int) -> None:
    """mount(2)."""
    if _LIBC.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), None) < 0:
        raise _error()


def drop_capabilities() -> None:
    """Give up every capability, for good."""
    try:
        prctl(PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a kernel without ambient capabilities
            raise
    syscall(_SYS_CAPSET[machine()], _CAPABILITY_HEADER, _NO_CAPABILITIES)


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
