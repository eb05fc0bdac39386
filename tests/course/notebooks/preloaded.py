"""What the fork server of the kernels imports: what the lessons import, so that no notebook needs to load it.

Afterwards the objects that came with it are left out of every look for garbage: in a forked process, a look at them
would also copy the memory in which they lie.
"""
# ruff: noqa: F401

import gc
import os
import sqlite3

# What ipykernel sets before anything can import matplotlib, which looks at it only then.
os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"

import ipykernel.debugger
import ipykernel.kernelapp
import ipywidgets
import matplotlib.backends.backend_agg  # and not pyplot: its import in a kernel is what makes figures appear there
import matplotlib.figure
import torch
import torch._dynamo  # the first step of an optimizer imports it
import tornado.platform.asyncio

from tests.course.notebooks import elsewhere

gc.collect()
gc.freeze()
