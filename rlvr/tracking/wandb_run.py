"""Weights & Biases, when asked for: off, offline (files inside the run folder) or online.

What can go wrong online goes wrong here, in seconds and before anything is trained: no package, no key, no
connection, a refused key. Later trouble never stops a run: wandb keeps what it could not send. Nothing of wandb is
imported unless asked for, and no key is ever printed or logged.
"""

from __future__ import annotations

import logging
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from rlvr.errors import ConfigError, UserError
from rlvr.tracking.text import plain, redact

log = logging.getLogger(__name__)

#: How long to wait for the server before training, and for the last uploads after it.
CONNECT_TIMEOUT_S = 5.0
INIT_TIMEOUT_S = 30.0
FINISH_TIMEOUT_S = 60.0

_OFFLINE_HINT = "or use track.wandb=offline and `wandb sync` afterwards"


class WandbRun(Protocol):
    """Where metrics go besides metrics.jsonl."""

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Record `metrics` at `step`; steps never decrease."""

    def summarise(self, summary: Mapping[str, Any]) -> None:
        """Record the summary of the whole run."""

    def finish(self, exit_code: int) -> None:
        """Send what is left, within a deadline, and end all of wandb's processes."""


class NoWandb:
    """track.wandb=off."""

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Nothing to do."""

    def summarise(self, summary: Mapping[str, Any]) -> None:
        """Nothing to do."""

    def finish(self, exit_code: int) -> None:
        """Nothing to do."""


class _Wandb:
    def __init__(self, module: Any, run: Any) -> None:
        self._module = module
        self._run = run
        self._broken = False

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        if self._broken:
            return
        try:
            self._run.log({name: value for name, value in metrics.items() if name != "step"}, step=step)
        except Exception as error:  # whatever a service beside the run does, the run goes on: metrics.jsonl has it all
            self._broken = True
            log.warning("wandb stopped recording at step %d: %s", step, redact(str(error)))

    def summarise(self, summary: Mapping[str, Any]) -> None:
        self._run.summary.update({name: value for name, value in plain(summary).items() if value is not None})

    def finish(self, exit_code: int) -> None:
        self._run.finish(exit_code=exit_code)
        self._module.teardown(exit_code)


def open_wandb(
    mode: str, *, project: str, run_id: str, name: str, folder: Path, config: Mapping[str, Any], job_type: str
) -> WandbRun:
    """Start a wandb run with its files in `folder`/wandb.

    Raises ConfigError for an unknown mode, UserError when wandb is not installed or, online, when there is no key,
    the server does not answer within seconds, or it refuses.
    """
    if mode == "off":
        return NoWandb()
    if mode not in ("offline", "online"):
        raise ConfigError(f"track.wandb={mode}: must be off, offline or online")
    try:
        import wandb
    except ImportError as error:
        raise UserError(
            f"track.wandb={mode}, but wandb cannot be imported ({error}). Install it with `pip install wandb`, "
            "or use track.wandb=off"
        ) from None
    # It would else print its own account of things between the lines of the console.
    quiet = wandb.Settings(silent=True)
    wandb.setup(settings=quiet)
    try:
        if mode == "online":
            _check_online(wandb)
        run = wandb.init(
            mode="online" if mode == "online" else "offline",
            dir=str(folder),
            project=project,
            id=run_id,
            name=name,
            job_type=job_type,
            config=plain(config),
            settings=wandb.Settings(
                silent=True,
                console="off",  # capturing the terminal breaks the live console, and might send what is private
                disable_git=True,
                disable_code=True,
                disable_job_creation=True,
                save_code=False,
                init_timeout=INIT_TIMEOUT_S,
                finish_timeout=FINISH_TIMEOUT_S if mode == "online" else 0.0,
            ),
        )
    except (wandb.Error, ValueError, OSError, TimeoutError) as error:
        wandb.teardown(1)
        reason = redact(str(error)).rstrip(". ") or type(error).__name__
        raise UserError(f"wandb did not start (track.wandb={mode}): {reason}. Mend that, {_OFFLINE_HINT}") from None
    except BaseException:
        wandb.teardown(1)
        raise
    return _Wandb(wandb, run)


def _check_online(wandb: Any) -> None:
    """Raises UserError without a key or a server, before wandb's own long retries begin."""
    server = str(wandb.setup().settings.base_url)
    if not wandb.login(prompt=False, verify=False):
        raise UserError(
            f"track.wandb=online needs a key for {server}, and there is none: run `wandb login` or set "
            f"WANDB_API_KEY, {_OFFLINE_HINT}"
        )
    try:
        # Proxies from the environment are respected. Any answer will do, an error page too.
        with urllib.request.urlopen(server, timeout=CONNECT_TIMEOUT_S):
            return
    except urllib.error.HTTPError:
        return
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise UserError(
            f"track.wandb=online, but {server} did not answer ({redact(str(reason))}). "
            f"Check the connection, {_OFFLINE_HINT}"
        ) from None
