"""`python -m headwater.cli` is the `headwater` command where no script of that name is on the PATH."""

import sys

from headwater.cli import main

sys.exit(main())
