"""The driver: one asyncio loop that issues prompts, moves finished groups on, feeds the learner and syncs weights.

`loop.py` is the loop. Beside it stand the policies it consults, each a small pure state machine, and
`protocols.py`, which is all that it knows about actors.
"""
