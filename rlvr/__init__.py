"""rlvr: reinforcement learning for language models with rewards that a program can check."""

__version__ = "0.1.0"
