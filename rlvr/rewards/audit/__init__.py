"""What a reward is tried out with before it is trusted: spellings of right and of wrong answers. Pure."""

from rlvr.rewards.audit.spellings import RIGHT_KINDS, WRONG_KINDS, right_spellings, wrong_spellings

__all__ = ["RIGHT_KINDS", "WRONG_KINDS", "right_spellings", "wrong_spellings"]
