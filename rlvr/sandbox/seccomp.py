"""The filter of system calls that programs run under: what is not on the list does not exist.

A classic BPF program, written out here (struct seccomp_data and SECCOMP_RET_*: include/uapi/linux/seccomp.h), so that
nothing need be installed. Three answers: allowed, some only with harmless arguments; refused, as if the kernel did not
have the call; and fatal for calls that only an attack makes, so that an attack is seen. Numbers are those of
asm/unistd_64.h (x86-64) and asm-generic/unistd.h (aarch64); 64-bit little-endian arguments.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Sequence

from rlvr.sandbox import kernel

_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000

#: name: (x86-64, aarch64); None: not there.
ALLOWED: dict[str, tuple[int | None, int | None]] = {
    # descriptors that the program has
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67),
    "pwrite64": (18, 68), "lseek": (8, 62), "close": (3, 57), "close_range": (436, 436), "fstat": (5, 80),
    "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24), "fcntl": (72, 25), "pipe": (22, None), "pipe2": (293, 59),
    "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72), "epoll_create1": (291, 20),
    "epoll_create": (213, None), "epoll_ctl": (233, 21), "epoll_wait": (232, None), "epoll_pwait": (281, 22),
    "eventfd2": (290, 19), "shutdown": (48, 210), "getsockname": (51, 204), "getpeername": (52, 205),
    "getsockopt": (55, 209), "recvfrom": (45, 207), "recvmsg": (47, 212),
    # names of files, which lead nowhere: right programs look for some, and go on without them
    "open": (2, None), "openat": (257, 56), "stat": (4, None), "lstat": (6, None), "newfstatat": (262, 79),
    "statx": (332, 291), "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439),
    "readlink": (89, None), "readlinkat": (267, 78), "getdents64": (217, 61), "getcwd": (79, 17),
    # memory and threads
    "mmap": (9, 222), "munmap": (11, 215), "mprotect": (10, 226), "mremap": (25, 216), "brk": (12, 214),
    "madvise": (28, 233), "membarrier": (324, 283), "futex": (202, 98), "set_robust_list": (273, 99),
    "rseq": (334, 293), "set_tid_address": (218, 96), "sched_yield": (24, 124), "sched_getaffinity": (204, 123),
    "getcpu": (309, 168), "exit": (60, 93), "exit_group": (231, 94),
    # signals to itself
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "sigaltstack": (131, 132),
    "rt_sigtimedwait": (128, 137), "rt_sigsuspend": (130, 133), "rt_sigpending": (127, 136), "pause": (34, None),
    "alarm": (37, None), "setitimer": (38, 103), "getitimer": (36, 102), "restart_syscall": (219, 128),
    # what it is and what time it is
    "getpid": (39, 172), "gettid": (186, 178), "getppid": (110, 173), "getuid": (102, 174), "geteuid": (107, 175),
    "getgid": (104, 176), "getegid": (108, 177), "getgroups": (115, 158), "getresuid": (118, 148),
    "getresgid": (120, 150), "getpgrp": (111, None), "getpgid": (121, 155), "getsid": (124, 156), "uname": (63, 160),
    "sysinfo": (99, 179), "getrlimit": (97, 163), "setrlimit": (160, 164), "getrusage": (98, 165), "times": (100, 153),
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "clock_nanosleep": (230, 115), "nanosleep": (35, 101),
    "gettimeofday": (96, 169), "time": (201, None), "getrandom": (318, 278), "umask": (95, 166),
}  # fmt: skip

FATAL: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_send_signal": (424, 424), "pidfd_getfd": (438, 438), "kcmp": (312, 272), "mount": (165, 40),
    "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "move_mount": (429, 429),
    "open_tree": (428, 428), "fsopen": (430, 430), "setns": (308, 268), "unshare": (272, 97),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "add_key": (248, 217),
    "keyctl": (250, 219), "request_key": (249, 218), "open_by_handle_at": (304, 265), "setuid": (105, 146),
    "setgid": (106, 144), "setreuid": (113, 145), "setregid": (114, 143), "setresuid": (117, 147),
    "setresgid": (119, 149), "setgroups": (116, 159), "setfsuid": (122, 151), "setfsgid": (123, 152),
    "capset": (126, 91), "seccomp": (317, 277), "iopl": (172, None), "ioperm": (173, None), "tkill": (200, 130),
}  # fmt: skip

#: Calls whose arguments are looked at.
_CLONE = (56, 220)
_KILL, _TGKILL = (62, 129), (234, 131)
_PRCTL, _PRLIMIT = (157, 167), (302, 261)
_IOCTL, _SOCKETPAIR, _SENDTO, _SETSOCKOPT = (16, 29), (53, 199), (44, 206), (54, 208)
_EXECVE = (59, 221)

_CLONE_THREAD = 0x10000
_CLONE_NAMESPACES = 0x7E020000 | 0x80
_PR_NAMES = (15, 16)  # of threads: set, get
#: TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX
_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
_AF_UNIX, _SOCK_STREAM, _SOCK_TYPE = 1, 1, 0xF

#: An instruction: code, where to go if true and if false (relative), operand.
Code = list[tuple[int, int, int, int]]
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_SET, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
_ALLOW, _KILL_PROCESS = 0x7FFF0000, 0x80000000
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
#: Stands for the number of the process that the filter is put on.
_OWN = 0xFFFFFFFE


def _errno(number: int) -> int:
    return 0x00050000 | number


class Filter:
    """The filter for this machine, built once; `install` puts it on the calling process.

    Calls are found by halving: the kernel checks and translates the filter anew for each process, and its time for
    that grows with the length of the longest way through it.
    """

    def __init__(self) -> None:
        column = list(_ARCHITECTURE).index(kernel.machine())
        answers: dict[int, Code] = {}
        for calls, answer in ((ALLOWED, _ALLOW), (FATAL, _KILL_PROCESS)):
            answers |= {number: [_return(answer)] for call in calls.values() if (number := call[column]) is not None}
        answers |= {call[column]: check for call, check in _CHECKED.items()}
        if column == 0:
            answers |= {_X32: [_return(_KILL_PROCESS)]}
        absent = [_return(_errno(errno.ENOSYS))]
        spans: list[tuple[int, Code]] = []  # from which number on, what is answered
        for number in sorted(answers):
            if not spans or spans[-1][1] != answers[number]:
                spans.append((number, answers[number]))
            if number + 1 not in answers and number != _X32:
                spans.append((number + 1, absent))
        if spans[0][0] != 0:
            spans.insert(0, (0, absent))
        code = [
            _load(_ARCH),
            (_JUMP_EQUAL, 1, 0, list(_ARCHITECTURE.values())[column]),
            _return(_KILL_PROCESS),
            _load(_NUMBER),
            *_halve(spans),
        ]
        self._own = [place for place, instruction in enumerate(code) if instruction[3] == _OWN]
        text = b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
        self._code = ctypes.create_string_buffer(text, len(text))
        self._program = ctypes.create_string_buffer(struct.pack("=HxxxxxxQ", len(code), ctypes.addressof(self._code)))

    def __len__(self) -> int:
        """Number of instructions."""
        return len(self._code) // 8

    def install(self, process: int) -> None:
        """Put the filter on this process, whose number is `process`. Needs no-new-privileges. Raises OSError."""
        for place in self._own:
            struct.pack_into("=I", self._code, 8 * place + 4, process)
        kernel.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.c_void_p(ctypes.addressof(self._program)))


def _halve(spans: Sequence[tuple[int, Code]]) -> Code:
    """Code that finds the answer of the span that a number lies in."""
    if len(spans) == 1:
        return spans[0][1]
    middle = len(spans) // 2
    below, above = _halve(spans[:middle]), _halve(spans[middle:])
    return [(_JUMP_AT_LEAST, len(below), 0, spans[middle][0]), *below, *above]


def _load(offset: int) -> tuple[int, int, int, int]:
    return (_LOAD, 0, 0, offset)


def _argument(place: int, *, high: bool = False) -> tuple[int, int, int, int]:
    return _load(_ARGUMENTS + 8 * place + 4 * high)


def _return(answer: int) -> tuple[int, int, int, int]:
    return (_RETURN, 0, 0, answer)


def _one_of(argument: int, values: Sequence[int], otherwise: int) -> Code:
    tests = [(_JUMP_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    return [_argument(argument), *tests, _return(otherwise), _return(_ALLOW)]


_THREADS_ONLY: Code = [
    _argument(0),
    (_JUMP_SET, 1, 0, _CLONE_NAMESPACES),
    (_JUMP_SET, 1, 0, _CLONE_THREAD),
    _return(_errno(errno.EPERM)),
    _return(_ALLOW),
]
#: asyncio wakes itself through a pair of sockets. Stream sockets cannot be sent to elsewhere.
_PAIR_OF_STREAMS: Code = [
    _argument(0),
    (_JUMP_EQUAL, 0, 3, _AF_UNIX),
    _argument(1),
    (_AND, 0, 0, _SOCK_TYPE),
    (_JUMP_EQUAL, 1, 0, _SOCK_STREAM),
    _return(_errno(errno.EPERM)),
    _return(_ALLOW),
]
_WITHOUT_ADDRESS: Code = [
    _argument(4),
    (_JUMP_EQUAL, 0, 2, 0),
    _argument(4, high=True),
    (_JUMP_EQUAL, 1, 0, 0),
    _return(_errno(errno.EPERM)),
    _return(_ALLOW),
]
_CHECKED: dict[tuple[int, int], Code] = {
    _CLONE: _THREADS_ONLY,
    _KILL: _one_of(0, (_OWN,), _KILL_PROCESS),
    _TGKILL: _one_of(0, (_OWN,), _KILL_PROCESS),
    _PRLIMIT: _one_of(0, (0, _OWN), _errno(errno.EPERM)),
    _PRCTL: _one_of(0, _PR_NAMES, _errno(errno.EPERM)),
    _IOCTL: _one_of(1, _IOCTLS, _errno(errno.ENOTTY)),
    _SOCKETPAIR: _PAIR_OF_STREAMS,
    _SENDTO: _WITHOUT_ADDRESS,
    _SETSOCKOPT: [_return(_errno(errno.EPERM))],
    _EXECVE: [_return(_errno(errno.EPERM))],
}
