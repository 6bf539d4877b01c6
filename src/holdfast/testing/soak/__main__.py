"""`python -m holdfast.testing.soak`: random worlds for as long as wanted."""

import sys

from holdfast.testing.soak.run import main

sys.exit(main())
