"""Is the Hugging Face hub there? Asked before anything is fetched from it, so that its absence is noticed in seconds.

The hub's own libraries retry an unreachable host for minutes, without a word. Models and data sets share this
check. It must know neither models nor tasks, and imports only the standard library.
"""

from __future__ import annotations

import os
import threading
import urllib.error
import urllib.request

from rlvr.errors import UserError

DEFAULT_ENDPOINT = "https://huggingface.co"
_TRUE = {"1", "ON", "YES", "TRUE"}  # what huggingface_hub takes for true


def endpoint() -> str:
    """Address of the hub: HF_ENDPOINT, or the public one."""
    return (os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")


def offline() -> bool:
    """Has the user forbidden the network, with HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE?"""
    value = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return value.upper() in _TRUE


def require_reachable(what: str, *, timeout_s: float, instead: str) -> None:
    """Return when the hub may be asked and answers within `timeout_s` seconds; else raise `unavailable`."""
    if reason := "HF_HUB_OFFLINE is set" if offline() else why_unreachable(timeout_s):
        raise unavailable(what, reason, instead)


def unavailable(what: str, reason: str, instead: str) -> UserError:
    """The error for `what` ("model org/name") that only the hub has; `instead` is what to do without a hub."""
    return UserError(
        f"{what} must be fetched from {endpoint()}, and that cannot be: {reason}. {instead} "
        "A mirror can be named with HF_ENDPOINT, a slow connection given more time with model.hub_timeout_s."
    )


def why_unreachable(timeout_s: float) -> str:
    """Why the hub does not answer within `timeout_s` seconds; empty when it does.

    Runs in a thread of its own: neither name resolution nor a proxy's handshake honours a socket timeout.
    """
    outcome: list[str] = []
    thread = threading.Thread(target=lambda: outcome.append(_probe(timeout_s)), name="hub-probe", daemon=True)
    thread.start()
    thread.join(timeout_s)
    return outcome[0] if outcome else f"no answer within {timeout_s:g} s"


def _probe(timeout_s: float) -> str:
    """One request. Any answer below 500 shows that somebody is there, an error page included."""
    try:
        # The address is the user's own setting, as huggingface_hub takes it; urllib honours proxies and CA files.
        request = urllib.request.Request(endpoint(), method="HEAD")
        with urllib.request.urlopen(request, timeout=timeout_s):
            return ""
    except urllib.error.HTTPError as error:
        return f"it answers {error.code} {error.reason}" if error.code >= 500 else ""
    except urllib.error.URLError as error:
        return str(error.reason)
    except (OSError, ValueError) as error:  # ValueError: HF_ENDPOINT is not an address
        return str(error)
