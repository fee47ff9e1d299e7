"""`python -m nls_scheduler` is `nls`."""

import sys

from nls_scheduler.cli import main

sys.exit(main())
