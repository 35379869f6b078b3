"""The filter of system calls, run through an interpreter of its instructions, for both architectures."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable

import pytest

from rlvr.sandbox import kernel, seccomp

ALLOW, KILL = 0x7FFF0000, 0x80000000
NO_SUCH_CALL, NOT_PERMITTED, NO_TERMINAL = (0x50000 | number for number in (errno.ENOSYS, errno.EPERM, errno.ENOTTY))
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
OWN = 4711

Ask = Callable[..., int]


@pytest.fixture(params=ARCHITECTURES)
def machine(request, monkeypatch) -> str:
    monkeypatch.setattr(kernel, "machine", lambda: request.param)
    return str(request.param)


@pytest.fixture
def ask(machine: str) -> Ask:
    """The filter's answer to a call: number, arguments."""
    built = seccomp.Filter()
    code = [struct.unpack_from("=HBBI", built._code, 8 * place) for place in range(len(built))]

    def answer(number: int, *arguments: int, architecture: int = ARCHITECTURES[machine][1]) -> int:
        padded = [value % 2**64 for value in (*arguments, *[0] * (6 - len(arguments)))]
        data = struct.pack("=IIQ6Q", number, architecture, 0, *padded)
        place, register = 0, 0
        while True:
            operation, if_true, if_false, operand = code[place]
            operand = OWN if operand == seccomp._OWN else operand
            place += 1
            if operation == 0x20:
                (register,) = struct.unpack_from("=I", data, operand)
            elif operation == 0x54:
                register &= operand
            elif operation == 0x06:
                return operand
            else:
                true = {0x15: register == operand, 0x35: register >= operand, 0x45: bool(register & operand)}[operation]
                place += if_true if true else if_false

    return answer


def test_what_is_on_no_list_does_not_exist(ask: Ask, machine: str):
    column = ARCHITECTURES[machine][0]
    listed = {call[column]: ALLOW for call in seccomp.ALLOWED.values()}
    listed |= {call[column]: KILL for call in seccomp.FATAL.values()}
    looked_at = {call[column] for call in seccomp._CHECKED}
    for number in range(600):
        if number not in looked_at:
            assert ask(number) == listed.get(number, NO_SUCH_CALL), number


def test_other_architectures_are_fatal(ask: Ask, machine: str):
    for name, (_, architecture) in ARCHITECTURES.items():
        expected = ALLOW if name == machine else KILL
        number = seccomp.ALLOWED["read"][ARCHITECTURES[machine][0]]
        assert ask(number, architecture=architecture) == expected
    assert ask(0, architecture=0x40000003) == KILL  # 32 bits
    assert ask(0x40000000 + 1) == (KILL if machine == "x86_64" else NO_SUCH_CALL)  # x32


def test_arguments_that_matter_are_looked_at(ask: Ask, machine: str):
    column = ARCHITECTURES[machine][0]
    clone, kill, tgkill = seccomp._CLONE[column], seccomp._KILL[column], seccomp._TGKILL[column]
    assert ask(clone, 0x3D0F00) == ALLOW  # what pthread_create asks for
    assert ask(clone, 17) == ask(clone, 0x4111) == NOT_PERMITTED  # fork, vfork
    assert ask(clone, 0x10000 | 0x10000000) == NOT_PERMITTED  # a thread in a new namespace
    for call in (kill, tgkill):
        assert ask(call, OWN, 9) == ALLOW
        assert ask(call, 1, 9) == ask(call, 0, 9) == ask(call, -1, 9) == ask(call, -OWN, 9) == KILL
    prctl, limit = seccomp._PRCTL[column], seccomp._PRLIMIT[column]
    assert ask(prctl, 15) == ALLOW and ask(prctl, 1) == ask(prctl, 38) == NOT_PERMITTED
    assert ask(limit, 0) == ask(limit, OWN) == ALLOW and ask(limit, 1) == NOT_PERMITTED
    pair, send, control = seccomp._SOCKETPAIR[column], seccomp._SENDTO[column], seccomp._IOCTL[column]
    assert ask(pair, 1, 1) == ask(pair, 1, 1 | 0x80000) == ALLOW
    assert ask(pair, 1, 2) == ask(pair, 2, 1) == ask(pair, 1, 5) == NOT_PERMITTED
    assert ask(send, 3, 0, 0, 0, 0) == ALLOW
    assert ask(send, 3, 0, 0, 0, 0x7F0000000000) == ask(send, 3, 0, 0, 0, 0x1000) == NOT_PERMITTED
    assert ask(control, 0, 0x5401) == ALLOW and ask(control, 0, 0x5412) == NO_TERMINAL  # TIOCSTI types for others
    assert ask(seccomp._EXECVE[column]) == NOT_PERMITTED
