"""Builds the operators that DeepSpeed would otherwise compile in the middle of the first run on a CPU.

`python -m rlvr.launch.prebuild`; does nothing when they are there. Knows no model and no run.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from rlvr.errors import RlvrError, UserError

#: What the learner loads on a CPU: the communication of init_distributed, and AdamW.
BUILDERS = ("ShareMemCommBuilder", "FusedAdamBuilder")
#: Each takes 20 to 40 s on two idle cores, and minutes on busy ones.
DEADLINE_S = 1800


def main() -> int:
    """Build, and return the exit code."""
    try:
        _check_tools()
        signal.signal(signal.SIGALRM, _give_up)
        signal.alarm(DEADLINE_S)
        for name in BUILDERS:
            _build(name)
    except RlvrError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    finally:
        signal.alarm(0)
    return 0


def _check_tools() -> None:
    scripts = str(Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)])
    compiler = os.environ.get("CXX", "c++")
    if shutil.which(compiler) is None:
        raise UserError(f"no C++ compiler {compiler!r}: install g++, or name yours in CXX")
    if shutil.which("ninja") is None:
        raise UserError("ninja is not there: install the packages of requirements/ first, as `make install` does")


def _build(name: str) -> None:
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    logging.disable(logging.WARNING)  # DeepSpeed warns of GPU tools that a CPU needs none of
    from deepspeed.accelerator import get_accelerator

    builder = get_accelerator().create_op_builder(name)
    start = time.monotonic()
    try:
        builder.load(verbose=False)
    except (RuntimeError, ImportError, OSError) as error:
        raise UserError(f"DeepSpeed's operator {builder.name} could not be built:\n{error}") from error
    sys.stdout.write(f"DeepSpeed operator {builder.name}: ready after {time.monotonic() - start:.0f} s\n")


def _give_up(number: int, frame: FrameType | None) -> None:
    from torch.utils.cpp_extension import get_default_build_root

    folder = os.environ.get("TORCH_EXTENSIONS_DIR") or get_default_build_root()
    raise UserError(
        f"DeepSpeed's operators were not ready after {DEADLINE_S} s. If an earlier build was killed it left a file "
        f"named lock in a folder of {folder}: delete it and try again"
    )


if __name__ == "__main__":
    sys.exit(main())
