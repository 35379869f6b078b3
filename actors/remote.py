"""Calling an actor: every call has a deadline, and what comes back is a member of the failure taxonomy.

Must not know what any particular actor does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import ray
from ray import exceptions as ray_errors

from rlvr.errors import DeadlineError, InfrastructureError, RlvrError


async def call(reference: Awaitable[Any], *, seconds: float, waiter: str, awaited: str, what: str) -> Any:
    """Await the result of a remote method.

    Raises DeadlineError when it takes longer than `seconds`, InfrastructureError when the actor died, the
    RlvrError that the actor raised, or InfrastructureError around anything else it raised (a bug there is
    reported with its remote traceback; it never passes for a wrong answer).
    """
    try:
        return await asyncio.wait_for(_as_coroutine(reference), timeout=seconds)
    except TimeoutError:
        raise DeadlineError(waiter, awaited, what, seconds, log_hint=f"ray logs actor --name {awaited}") from None
    except ray_errors.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, RlvrError):
            raise cause from None
        raise InfrastructureError(f"{awaited} failed to {what}:\n{error}") from None
    except ray_errors.RayError as error:
        raise InfrastructureError(f"{awaited} is gone while asked to {what}: {error}") from None


async def _as_coroutine(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def kill(actor: Any) -> None:
    """Kill an actor without waiting; one that is dead already is fine."""
    ray.kill(actor, no_restart=True)
