"""`python -m rlvr.launch`, the same as the command `rlvr`."""

import sys

from rlvr.launch.cli import main

sys.exit(main())
