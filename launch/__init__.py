"""How a run starts: the command line and the verbs behind it. The only layer that knows all the others."""
