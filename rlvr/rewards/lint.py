"""What ruff says of a program: it parses and never runs it. Settings and excuses within the program are ignored."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from rlvr.errors import InfrastructureError

#: Errors, unused and undefined names, likely bugs, needless complication; no matters of taste.
RULES = "E4,E7,E9,F,B,SIM,C4"
TIMEOUT_S = 10.0
_MAX_SHOWN = 3


@cache
def executable() -> str | None:
    """Where ruff is: beside this interpreter, else in PATH; None: not installed."""
    beside = Path(sys.executable).parent / "ruff"
    return str(beside) if beside.exists() else shutil.which("ruff")


def findings(code: str) -> list[str]:
    """Rules that a program breaks, as `F841 line 3`. Raises InfrastructureError when ruff does not answer."""
    path = executable()
    if path is None:
        raise InfrastructureError("ruff is not installed: pip install ruff")
    command = [path, "check", "--isolated", "--ignore-noqa", "--no-cache", "--select", RULES]
    command += ["--output-format", "json", "--stdin-filename", "program.py", "-"]
    try:
        done = subprocess.run(
            command,
            input=code.encode("utf-8", "replace"),
            capture_output=True,
            timeout=TIMEOUT_S,
            env={"PATH": os.environ.get("PATH", ""), "RAYON_NUM_THREADS": "1"},
        )
        found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise InfrastructureError(f"ruff did not answer: {error}") from None
    return [f"{item.get('code') or 'syntax'} line {item['location']['row']}" for item in found]


def cleanliness(found: list[str]) -> float:
    """1 without findings, less with each."""
    return 1.0 / (1 + len(found))


def shown(found: list[str]) -> str:
    """The first findings, for the evidence."""
    more = f" and {len(found) - _MAX_SHOWN} more" if len(found) > _MAX_SHOWN else ""
    return ", ".join(found[:_MAX_SHOWN]) + more
