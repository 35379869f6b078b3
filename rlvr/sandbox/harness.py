"""What runs a program within its process, after every right is gone: takes its source and calls, gives results.

Nothing here protects anything: the program shares this process and may change it. All that it can gain is to send what
it likes, which its owner takes for what it returned. Must not be told what is expected of a program.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
import threading
import types
from socket import socket
from typing import Any

from rlvr.sandbox import frames, plain, suite

_SCRIPT, _MODULE = "__main__", "solution"


def serve(channel: socket) -> None:
    """Run what the owner asks for, until it closes the channel or the work is done."""
    task = frames.receive(channel)
    do = task["do"]
    module = types.ModuleType(_SCRIPT if do == "script" else _MODULE)
    sys.modules[module.__name__] = sys.modules["__main__"] = module
    gc.enable()
    if do == "script":
        _own_standard_streams()
    if do == "suite":
        suite.run(channel, task, module)
        return
    try:
        code = compile(task["code"], "<program>", "exec", dont_inherit=True)
    except BaseException as error:  # SyntaxError, ValueError (null bytes), RecursionError, MemoryError
        frames.send(channel, {"failed": "compile", "why": plain.describe(error)})
        return
    try:
        exec(code, module.__dict__)
        if do == "script":
            _finish()
    except BaseException as error:
        if not (do == "script" and _is_plain_exit(error)):
            _flush()
            frames.send(channel, {"failed": "run", "why": plain.describe(error)})
            return
        _finish()
    frames.send(channel, {"loaded": True})
    if do == "calls":
        _answer_calls(channel, module)


def _answer_calls(channel: socket, module: types.ModuleType) -> None:
    while True:
        try:
            request = frames.receive(channel)
        except EOFError:
            return
        for name, arguments, named in request["calls"]:
            frames.send(channel, call(module, name, arguments, named))


def call(module: types.ModuleType, name: str, arguments: Any, named: Any) -> dict[str, Any]:
    """The result of one call, or why there is none."""
    try:
        function: Any = module
        for part in name.split("."):
            function = getattr(function, part)
            if isinstance(function, type) and part != name.rpartition(".")[2]:
                function = function()  # Solution.method: of a new object
        value = function(*plain.decode(arguments), **plain.decode(named))
    except BaseException as error:
        return {"raised": type(error).__name__, "why": plain.describe(error)}
    try:
        return {"value": plain.encode(value)}
    except BaseException as error:
        return {"odd": plain.describe(error) if not isinstance(error, plain.NotPlain) else str(error)[: plain.MAX_TEXT]}


def _own_standard_streams() -> None:
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8", errors="replace")
    for number, name in ((1, "stdout"), (2, "stderr")):
        raw = io.FileIO(number, "w", closefd=False)
        stream = io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors="replace")
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.__stdin__ = sys.stdin  # type: ignore[misc]


def _is_plain_exit(error: BaseException) -> bool:
    return isinstance(error, SystemExit) and error.code in (None, 0)


def _finish() -> None:
    """What the interpreter does at its end: wait for threads, run what was registered, flush."""
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    _flush()


def _flush() -> None:
    try:
        sys.stdout.flush()
    except BaseException:
        os.close(1)
