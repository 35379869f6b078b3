"""From `model.path` to a folder in Hugging Face format, and the little that others ask of such a folder.

Importing this package imports neither torch nor transformers.
"""

from rlvr.models.resolve import resolve
from rlvr.models.tokens import context_length, encode_prompt, load_tokenizer

__all__ = ["context_length", "encode_prompt", "load_tokenizer", "resolve"]
