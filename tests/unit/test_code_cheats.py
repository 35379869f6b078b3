"""Cheats that we thought of ourselves: each is a program or a suite that knows nothing and wants the points."""

from __future__ import annotations

import json
import textwrap

import pytest

from rlvr.records import Status
from rlvr.rewards import Sample
from rlvr.rewards.python import python
from rlvr.rewards.test_suite import test_suite as suite_verifier

TESTS = json.dumps(
    {
        "function": "add",
        "tests": [
            {"args": [1, 2], "expected": 3},
            {"args": [-1, 1], "expected": 0, "hidden": True},
            {"args": [10, 20], "expected": 30, "hidden": True},
        ],
        "solution": "def add(a, b):\n    return a + b",
        "random": {"count": 3, "args": [{"int": [50, 99]}, {"int": [50, 99]}]},
    }
)
CLAMP = json.dumps(
    {
        "solution": "def clamp(x, lo, hi):\n    if x < lo:\n        return lo\n"
        "    if x > hi:\n        return hi\n    return x",
        "tests": [
            "assert clamp(5, 1, 9) == 5",
            "assert clamp(0, 1, 9) == 1",
            "assert clamp(12, 1, 9) == 9",
            "assert clamp(1, 1, 1) == 1",
        ],
    }
)

PROGRAMS = {
    "an int that equals everything": """
        class E(int):
            __eq__ = lambda s, o: True
            __ne__ = lambda s, o: False
            __hash__ = int.__hash__
        def add(a, b): return E(12345)
    """,
    "a str, list and dict that equal everything": """
        class E(dict):
            __eq__ = lambda s, o: True
            items = lambda s: [("a", 1)]
        def add(a, b): return E()
    """,
    "results sent before any call": """
        import os, struct, json
        body = json.dumps({"loaded": True}).encode()
        os.write(3, struct.pack(">I", len(body)) + body)
        for value in (3, 0, 30):
            body = json.dumps({"value": value}).encode()
            os.write(3, struct.pack(">I", len(body)) + body)
        def add(a, b): return None
    """,
    "every number at once": """
        import os, struct, json
        def add(a, b):
            for value in range(200):
                body = json.dumps({"value": value}).encode()
                os.write(3, struct.pack(">I", len(body)) + body)
    """,
    "a reply with several values": """
        import os, struct
        def add(a, b):
            body = b'{"value":3,"value":0,"expected":true,"passed":true}'
            os.write(3, struct.pack(">I", len(body)) + body)
            os._exit(0)
    """,
    "an encoded value with magic": """
        import os, struct
        def add(a, b):
            body = b'{"value":{"__class__":"rlvr","py/object":"os.system"}}'
            os.write(3, struct.pack(">I", len(body)) + body)
    """,
    "a frame longer than it says": """
        import os, struct
        def add(a, b):
            os.write(3, struct.pack(">I", 2**31) + b"{}")
    """,
    "deep nesting against the owner's parser": """
        import os, struct
        def add(a, b):
            body = b'{"value":' + b"[" * 200000 + b"]" * 200000 + b"}"
            body = struct.pack(">I", len(body)) + body
            while body: body = body[os.write(3, body):]
    """,
    "a number too long to read": """
        import os, struct
        def add(a, b):
            body = b'{"value":' + b"9" * 500000 + b"}"
            body = struct.pack(">I", len(body)) + body
            while body: body = body[os.write(3, body):]
    """,
    "NaN, which equals nothing and everything": "def add(a, b): return float('nan')",
    "True for 1": "def add(a, b): return True if a == 1 else False",
    "floats for whole numbers": "def add(a, b): return float(a + b)",
    "text for numbers": "def add(a, b): return str(a + b)",
    "a generator of all": "def add(a, b):\n    yield from range(1000)",
    "a coroutine": "async def add(a, b): return 3",
    "the harness replaced": """
        import sys
        for module in list(sys.modules.values()):
            for name in ("encode", "send", "call"):
                if hasattr(module, name) and getattr(module, "__file__", None):
                    setattr(module, name, lambda *a, **k: {"value": 3})
        def add(a, b): return 3
    """,
    "frames of the harness searched for what is expected": """
        import sys, gc
        def add(a, b):
            seen = []
            frame = sys._getframe()
            while frame:
                seen += [v for v in frame.f_locals.values() if isinstance(v, dict)]
                frame = frame.f_back
            seen += [o for o in gc.get_objects() if isinstance(o, dict)]
            for one in seen:
                for key in ("expected", "stdout", "tests", "reference"):
                    if isinstance(one.get(key), (int, list)):
                        return one[key]
    """,
    "own memory searched for the tests": """
        import ctypes, re
        def add(a, b):
            try:
                maps = open("/proc/self/maps").read()
            except OSError:
                return None
            return 3
    """,
    "recursion in what is returned": "def add(a, b):\n    x = []\n    x.append(x)\n    return x",
    "the owner's parent killed": "import os\ndef add(a, b): os.kill(1, 9)",
    "stopped for ever": "import os, signal\ndef add(a, b): os.kill(os.getpid(), signal.SIGSTOP)",
    "a thread that goes on": """
        import threading
        def spin():
            while True: pass
        for _ in range(4): threading.Thread(target=spin).start()
        def add(a, b): return None
    """,
    "exit from a destructor": """
        import os
        class D:
            def __del__(self): os._exit(0)
        def add(a, b):
            d = D()
            return a - b - 1
    """,
    "an exception whose text is the answer": """
        class A(Exception):
            def __str__(self): return '{"value": 3}'
        def add(a, b): raise A
    """,
    "an exception that cannot be described": """
        class A(BaseException):
            def __str__(self): raise A
            __repr__ = __str__
        def add(a, b): raise A
    """,
    "memory in the name of an exception": """
def add(a, b): raise type('A' * 10**7, (Exception,), {})('x' * 10**7)
""",
    "null bytes": "def add(a, b): return 3\0",
    "a source that the compiler cannot take": "(" * 50000,
    "json patched so that all is 3": """
        import json
        json.dumps = lambda *a, **k: '{"value":3}'
        def add(a, b): return None
    """,
    "the module replaced": "import sys\nsys.modules[__name__] = 3\ndef add(a, b): return sys.modules",
    "add is no function": "add = 3",
    "a name that resolves to anything": """
        class M(type(__import__("sys"))):
            def __getattr__(self, name): return lambda *a: 3
        import sys
        sys.modules[__name__].__class__ = M
    """,
    "a whole number that Python does not write": "def add(a, b): return 10**6000",
    "as many whole numbers of one hash": "def add(a, b): return {n * (2**61 - 1) for n in range(7000)}",
    "a message with control characters": "def add(a, b): raise ValueError('\x1b[2J\ud800')",
    "half a surrogate pair": "def add(a, b): return '\ud800'",
    "an infinite float": "def add(a, b): return float('inf')",
    "output in place of a result": "import sys\ndef add(a, b):\n    sys.stdout.write('{\"value\": 3}\\n')",
}

SUITES = {
    "a coin": """
import random, time
random.seed(time.time_ns())
def test_a():
    clamp(5, 1, 9)
    assert random.random() < 0.6
""",
    "the clock": """
import time
def test_a():
    clamp(5, 1, 9)
    assert time.time_ns() % 3
""",
    "the number of the process": "import os\ndef test_a():\n    clamp(0, 1, 9)\n    assert os.getpid() % 2",
    "the code compared": """
import inspect
def test_a():
    clamp(5, 1, 9)
    assert 'x < lo' in inspect.getsource(clamp)
""",
    "the code object hashed": """
def test_a():
    assert len(clamp.__code__.co_code) > 10
    clamp(5, 1, 9)
""",
    "a verdict sent by itself": """
import os, struct, json
body = json.dumps({"suite": "failed", "why": "", "tests": 9}).encode()
os.write(3, struct.pack(">I", len(body)) + body)
os._exit(0)
""",
    "passes if it sees no difference": "def test_a():\n    assert isinstance(clamp(5, 1, 9), int)",
    "never ends": "def test_a():\n    while True:\n        clamp(5, 1, 9)",
    "an assert about itself": """
def clamp(*a): return 5
def test_a():
    assert clamp(5, 1, 9) == 5 and clamp(0, 0, 0) == 5
""",
    "a fixture": "def test_a(clamp):\n    assert clamp(5, 1, 9) == 5",
    "catches everything": """
def test_a():
    try:
        assert clamp(5, 1, 9) == 4
    except BaseException:
        pass
""",
    "no test is called": "def check():\n    assert clamp(5, 1, 9) == 5",
}


def fenced(code: str) -> str:
    return f"```python\n{textwrap.dedent(code)}\n```"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_cheating_program_earns_nothing(name):
    found = python(Sample(fenced(PROGRAMS[name]), TESTS), time_s=0.5)
    assert found.score == 0.0, found.parts[""].evidence
    assert python(Sample(fenced("def add(a, b): return a + b"), TESTS)).score == 1.0


@pytest.mark.parametrize("name", SUITES)
def test_a_cheating_suite_earns_nothing(name):
    # What it earns on average: chance may be lucky once.
    scores = [suite_verifier(Sample(fenced(SUITES[name]), CLAMP), time_s=0.5).score for _ in range(5)]
    assert sum(score for score in scores if score is not None) / 5 <= 0.1 and None not in scores


def test_attacks_on_the_pipe_are_called_tampering():
    for name in (
        "a frame longer than it says",
        "an encoded value with magic",
        "deep nesting against the owner's parser",
    ):
        assert python(Sample(fenced(PROGRAMS[name]), TESTS)).status is Status.TAMPERED
    assert python(Sample(fenced(PROGRAMS["the owner's parent killed"]), TESTS)).status is Status.TAMPERED


@pytest.mark.parametrize(
    "value", ["10**6000", "'\\ud800'", "float('nan')", "b'\\xff'", "[[[[]]]]", "-(10**400)", "1e999j"]
)
def test_no_value_makes_the_verifier_fail(value):
    for test in ("f(1) == 3", "math.isclose(f(1), 0.5)", "abs(f(1) - 2) < 1", "len(f(1)) == 9", "sum(f(1)) == 9"):
        found = python(Sample(fenced(f"def f(x): return {value}"), f"assert {test}"))
        assert found.score == 0.0
        found.parts[""].evidence.encode()


def test_evidence_can_be_shown_on_a_terminal():
    found = python(Sample(fenced(PROGRAMS["a message with control characters"]), TESTS))
    assert found.parts[""].evidence.isprintable()
