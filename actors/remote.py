"""Calling an actor: every call has a deadline, and what comes back is a member of the failure taxonomy.

Both ends: `classified` around the actor's methods, `call` where they are awaited. Must not know what any particular
actor does.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import ray
from ray import exceptions as ray_errors

from rlvr.errors import DeadlineError, InfrastructureError, RlvrError

log = logging.getLogger(__name__)

Method = TypeVar("Method", bound=Callable[..., Any])


def classified(method: Method) -> Method:
    """Let only members of the failure taxonomy leave the actor. Anything else is a fault of this machine."""
    name = method.__qualname__
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            with _classifying(name):
                return await method(*args, **kwargs)

    else:

        @functools.wraps(method)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with _classifying(name):
                return method(*args, **kwargs)

    return wrapper  # type: ignore[return-value]  # functools.wraps keeps the signature


@contextmanager
def _classifying(name: str) -> Iterator[None]:
    try:
        yield
    except RlvrError:
        raise
    except Exception as error:
        log.exception("%s failed", name)
        raise InfrastructureError(f"{name} failed: {type(error).__name__}: {error}") from None


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
        raise InfrastructureError(f"{awaited} is gone while asked to {what}: {_reason(error)}") from None


def _reason(error: ray_errors.RayError) -> str:
    """What Ray says of a dead actor, in a line: after its first sentence comes general advice, pages long."""
    first = str(error).splitlines()[0].strip()
    if not isinstance(error, ray_errors.ActorDiedError):
        return first
    return f"{first} It crashed, was killed from outside, or the machine ran out of memory; its log may say which."


async def _as_coroutine(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def kill(actor: Any) -> None:
    """Kill an actor without waiting; one that is dead already is fine."""
    ray.kill(actor, no_restart=True)
