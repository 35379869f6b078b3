"""Verification: programs that judge completions. Imports neither torch nor ray: trying a reward takes milliseconds.

A reward of your own is a function in any module, named as `module:function` in the configuration:

    from rlvr.rewards import Sample

    def polite(sample: Sample, *, word: str = "please") -> float:
        return float(word in sample.completion)
"""

from rlvr.rewards.composite import Reward, strictly_right
from rlvr.rewards.numeric_answer import last_number_verdict
from rlvr.rewards.registry import reward
from rlvr.rewards.sample import Sample, samples_of

__all__ = ["Reward", "Sample", "last_number_verdict", "reward", "samples_of", "strictly_right"]
