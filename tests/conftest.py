"""One thread a process: the tests run side by side, and small operations gain nothing from more."""

import os

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
