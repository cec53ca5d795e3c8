"""``python -m ipysandbox``: the command line where its script is not on PATH."""

import sys

from ipysandbox.cli import main

sys.exit(main())
