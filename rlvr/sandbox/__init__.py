"""Programs that a model wrote, run where they can reach nothing: no files, no network, no other process.

`Sandbox` is the owner's side. `plain` is what crosses the border: plain data, never pickle. What confines a program is
in `confine`, and whether it really does is measured by `probes` at the start. docs/sandbox.md tells the whole story.
This package imports only Python's own library (and `rlvr.errors`): its zygote must stay small and clean. Start at
`owner.Sandbox`.
"""
