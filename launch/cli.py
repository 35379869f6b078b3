"""The command line: the verb, the configuration, and what the exit code says.

Imports nothing heavy by itself: a verb's own module is loaded when the verb is used. Must not know what verbs do.
"""

from __future__ import annotations

import difflib
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import rlvr
from rlvr.compose import Composed, compose
from rlvr.errors import ConfigError, RlvrError, UserError

EXIT_OK = 0
EXIT_FAILED = 1
"""The run was asked for properly, and did not do what it was asked."""
EXIT_USER_ERROR = 2
"""The request cannot be met as it stands: configuration, paths, data, machine."""

VERBS = ("train", "eval", "config")
LATER_VERBS = ("plan", "audit", "report", "scale", "sagemaker")

USAGE = """\
usage: rlvr [verb] [conf=<name or path>] [key=value ...]

verbs
  train    train as configured (the default)
  eval     accuracy of a model, or of a run's checkpoint (eval.checkpoint=<folder>), on the held-out problems
  config   every key with its type, default and meaning; with conf=..., the resolved configuration as YAML

configurations that come with the package: {names}
one of your own: conf=./mine.yaml, which may say `extends: quickstart`

examples
  rlvr conf=quickstart
  rlvr conf=gsm8k task.path=data/gsm8k run.steps=50
  rlvr eval conf=gsm8k eval.checkpoint=runs/mine
  rlvr config conf=gsm8k learner.lr=2e-6

exit codes: 0 done, 1 failed, 2 wrong request, 130 Ctrl-C, 143 SIGTERM
"""


@dataclass(frozen=True)
class Request:
    """A command line, taken apart."""

    verb: str
    conf: str
    overrides: tuple[str, ...]


def parse(arguments: Sequence[str]) -> Request:
    """Take the arguments apart. Raises ConfigError for an unknown verb or a second conf."""
    words = list(arguments)
    bare = bool(words) and "=" not in words[0] and not words[0].startswith("-")
    verb = words.pop(0) if bare else "train"
    if verb in LATER_VERBS:
        raise ConfigError(f"the verb {verb} is not there in version {rlvr.__version__}. There are: {', '.join(VERBS)}")
    if verb not in VERBS:
        close = difflib.get_close_matches(verb, VERBS, n=1)
        hint = f" Did you mean {close[0]}?" if close else f" A configuration is chosen with conf={verb}"
        raise ConfigError(f"unknown verb {verb!r}. There are: {', '.join(VERBS)}.{hint}")
    confs = [word.removeprefix("conf=") for word in words if word.startswith("conf=")]
    if len(confs) > 1:
        raise ConfigError(f"conf is given {len(confs)} times; files are combined with `extends:`")
    if confs == [""]:
        raise ConfigError("conf= names no configuration")
    overrides = tuple(word for word in words if not word.startswith("conf="))
    return Request(verb, confs[0] if confs else "", overrides)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if any(word in ("-h", "--help", "help") for word in arguments):
        return _help()
    try:
        return _dispatch(parse(arguments))
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_USER_ERROR
    except RlvrError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return EXIT_FAILED
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # The reader, as in `rlvr config | head`, has seen enough. Keep the interpreter from flushing into the void.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK


def _dispatch(request: Request) -> int:
    if request.verb == "config":
        from rlvr.launch import config_verb

        return config_verb.main(request.conf, request.overrides)
    composed = compose(request.conf, request.overrides)
    _check(request.verb, composed)
    _prepare_environment()
    signal.signal(signal.SIGTERM, _terminate)
    if request.verb == "eval":
        from rlvr.launch import evaluate

        return evaluate.main(composed.config, composed.name)
    from rlvr.launch import train

    return train.main(composed.config, composed.name)


def _check(verb: str, composed: Composed) -> None:
    """What can be said against the request once the verb and the machine are known."""
    from rlvr.launch.machine import check_machine, missing_packages
    from rlvr.launch.verifiers import unknown_verifiers

    learns = verb == "train"
    problems = check_machine(composed.config, learns=learns) + missing_packages(composed.config, learns=learns)
    problems += unknown_verifiers(composed.config)
    if verb != "eval" and "eval.checkpoint" in composed.provenance:
        source = composed.provenance["eval.checkpoint"]
        problems.append(f"eval.checkpoint ({source}) has no effect unless the verb is eval")
    if problems:
        raise ConfigError(problems)


def _prepare_environment() -> None:
    """Let a run find what lies beside it, however it was started."""
    scripts = str(Path(sys.executable).parent)
    if shutil.which("ninja") is None and scripts not in os.environ.get("PATH", "").split(os.pathsep):
        # An interpreter used without activating its environment: libraries that compile look for ninja on the PATH.
        os.environ["PATH"] = os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)])
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        # A user's own module:function stands in the current folder; behind all else, it can shadow nothing.
        sys.path.append(here)


def _terminate(number: int, frame: object) -> None:
    """SIGTERM before or after a run's own handlers: unwind, so that everything held is released."""
    raise SystemExit(128 + number)


def _help() -> int:
    from rlvr.compose import packaged_names

    sys.stdout.write(USAGE.format(names=", ".join(packaged_names())))
    return EXIT_OK
