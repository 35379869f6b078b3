"""Landlock: a process takes itself the right to reach files, ports and processes outside. No privilege needed.

The ruleset has no rule, so everything that the kernel can refuse in this way is refused. Constants and layout of
struct landlock_ruleset_attr: include/uapi/linux/landlock.h.
"""

from __future__ import annotations

import ctypes
import os
import struct

from rlvr.sandbox.kernel import syscall

_CREATE_RULESET, _RESTRICT_SELF = 444, 446  # the same on all architectures
_GET_VERSION = 1
#: Rights on files by version of the interface: so many of the lowest bits.
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_NETWORK = 0b11  # bind, connect: since 4
_SCOPES = 0b11  # abstract sockets, signals: since 6


def version() -> int:
    """Version of the kernel's interface. Raises OSError where there is none."""
    return syscall(_CREATE_RULESET, 0, 0, _GET_VERSION)


def ruleset() -> int:
    """A descriptor of a ruleset that allows nothing. Raises OSError."""
    known = version()
    handled = [(1 << _FILE_RIGHTS[min(known, max(_FILE_RIGHTS))]) - 1]
    if known >= 4:
        handled.append(_NETWORK)
    if known >= 6:
        handled.append(_SCOPES)
    attributes = ctypes.create_string_buffer(struct.pack(f"={len(handled)}Q", *handled))
    descriptor = syscall(_CREATE_RULESET, attributes, 8 * len(handled), 0)
    os.set_inheritable(descriptor, False)
    return descriptor


def restrict(descriptor: int) -> None:
    """Apply a ruleset to this process and all that it will start. Needs no-new-privileges. Raises OSError."""
    syscall(_RESTRICT_SELF, descriptor, 0)
