"""The failure taxonomy: which errors there are, and what each of them asks of whoever catches it.

Every error that crosses an actor boundary is one of these; they are picklable, carry plain text, and
say what happened, to what, and what to do. Classification happens where the information is, inside the
actor, never by reading a message on the other side. This module must not know about Ray, vLLM or torch.
"""

from __future__ import annotations


class RlvrError(Exception):
    """Base of everything this project raises on purpose."""


class UserError(RlvrError):
    """The person can mend it: configuration, paths, data, machine. Shown without a traceback."""


class ConfigError(UserError):
    """One or more problems of the configuration, all reported at once."""

    def __init__(self, problems: list[str] | str) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return self.problems[0]
        lines = "\n".join(f"  - {problem}" for problem in self.problems)
        return f"{len(self.problems)} problems in the configuration:\n{lines}"


class DataError(UserError):
    """A row, prompt or reference is unusable. Retrying elsewhere cannot help: report it, drop it, count it."""


class InfrastructureError(RlvrError):
    """A machine, process or connection failed. The same work may succeed elsewhere: re-dispatch, within a budget."""


class DeadlineError(InfrastructureError):
    """A wait ran out. Names the edge: who waited, for whom, for what, how long, and where that one's log is."""

    def __init__(self, waiter: str, awaited: str, what: str, seconds: float, log_hint: str = "") -> None:
        self.args_tuple = (waiter, awaited, what, seconds, log_hint)
        super().__init__(*self.args_tuple)

    def __str__(self) -> str:
        waiter, awaited, what, seconds, log_hint = self.args_tuple
        text = f"{waiter} waited {seconds:.0f} s for {awaited} to {what}, and gave up"
        return f"{text}. Its log: {log_hint}" if log_hint else text


class TrainingError(RlvrError):
    """The run cannot go on honestly (logprob gap, reward failures, no trainable group). Never retried."""
