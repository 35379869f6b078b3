"""The policy: a causal language model that gives logprobs of completions, each distinct token computed once.

Knows models and tensors; knows nothing of rewards, advantages, actors or engines.
"""
