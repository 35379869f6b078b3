"""Everything that is a Ray actor, and the pools through which the driver talks to them.

The only layer that imports ray. Actors are thin: logic lives in rlvr.engine, rlvr.rewards, rlvr.policy
and rlvr.grpo; heavy packages (vllm, deepspeed) are imported inside the actor that needs them.
"""
