"""What the lessons import, loaded before a kernel is forked; nothing here runs any of it.

torch._dynamo is what the first step of an optimizer imports; the builder's kernels, new interpreters, do so in their
time. matplotlib.pyplot is not here: its import in a kernel is what makes figures appear there.
"""

# ruff: noqa: F401
import os

os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # as ipykernel sets it before any import

import ipykernel.kernelapp
import ipywidgets
import matplotlib.backends.backend_agg
import matplotlib.figure
import sklearn.datasets
import torch
import torch._dynamo
