"""Tasks: where problems come from, how they become prompts, and in which order they are issued.

A task yields `Prompt` records with text or messages. No tokenizer, no torch, no Ray: building one takes
milliseconds, and a test of it needs no model.
"""

from rlvr.tasks.lengths import check_lengths
from rlvr.tasks.registry import build
from rlvr.tasks.rows import BadRow
from rlvr.tasks.sampler import Sampler
from rlvr.tasks.task import Task

__all__ = ["BadRow", "Sampler", "Task", "build", "check_lengths"]
