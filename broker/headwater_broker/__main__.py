"""`python -m headwater_broker`: see `headwater_broker.server.process`."""

import sys

from headwater_broker.server.process import main

sys.exit(main())
