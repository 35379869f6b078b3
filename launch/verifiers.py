"""Whether the verifiers that a configuration names exist. Must not know what a verb does with them."""

from __future__ import annotations

from rlvr.config import Config
from rlvr.errors import ConfigError
from rlvr.rewards import registry


def unknown_verifiers(config: Config) -> list[str]:
    """Criteria whose verifier is neither registered nor of the form module:function."""
    problems: list[str] = []
    for name, criterion in config.reward.criteria.items():
        if ":" in criterion.verifier:
            continue  # the user's own module is imported when the run begins, by the processes that grade
        try:
            registry.resolve(criterion.verifier, f"reward.criteria.{name}.verifier")
        except ConfigError as error:
            problems += error.problems
    return problems
