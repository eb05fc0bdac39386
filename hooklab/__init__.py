"""hooklab: see, keep and change what flows through a PyTorch model.

What it does, and the files where each is:

    capture          keep the outputs of modules, and their inputs and gradients    capturing, seen
    edit, run_until  replace outputs; stop half-way                                 editing
    monitor          statistics of each step; the first inf or nan, by name         monitoring, watching, health
    timeline         who runs when, forward and backward                            tracing
    leftover_hooks   which hooks are still registered                               leftover
    ManifoldMixup    train with mixed hidden layers                                 mixup, mixing
    select           parts of a model by name, glob, type, object or predicate      selecting
    mini             the machinery of hooks once more, small enough to read         mini/

What they share is in ``_shared/``: ``sessions`` (hooks that live as long as a ``with`` block, and what a pass is),
``stale`` (names that mean another module than before), ``trees`` (tensors in tuples, dicts and so on), ``eager``
(no torch.compile while a block is open) and ``torch_private`` (the private names of torch that all this needs). The
course is in ``course/``; nothing of the above imports it.

The public names are loaded on first use (PEP 562), so that ``import hooklab`` imports no torch and
``python -m hooklab lab`` can run on a machine where nothing is installed yet. This file and ``__main__`` keep to
syntax that old Pythons can read, so that such a Python gets a sentence instead of a SyntaxError.
"""

import importlib
import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # for editors and type checkers; never run
    from hooklab.capturing import capture as capture
    from hooklab.course.exercises import check as check
    from hooklab.course.exercises import progress as progress
    from hooklab.course.exercises.predict import predict as predict
    from hooklab.course.exercises.predict import reveal as reveal
    from hooklab.editing import edit as edit
    from hooklab.editing import run_until as run_until
    from hooklab.leftover import leftover_hooks as leftover_hooks
    from hooklab.mixup import ManifoldMixup as ManifoldMixup
    from hooklab.monitoring import monitor as monitor
    from hooklab.selecting import select as select
    from hooklab.tracing import timeline as timeline

__version__ = "0.1.0"

# public name -> module that defines it
_HOME = {
    "check": "hooklab.course.exercises",
    "predict": "hooklab.course.exercises.predict",
    "progress": "hooklab.course.exercises",
    "reveal": "hooklab.course.exercises.predict",
    "capture": "hooklab.capturing",
    "edit": "hooklab.editing",
    "run_until": "hooklab.editing",
    "leftover_hooks": "hooklab.leftover",
    "ManifoldMixup": "hooklab.mixup",
    "monitor": "hooklab.monitoring",
    "select": "hooklab.selecting",
    "timeline": "hooklab.tracing",
}

# A wheel holds the library alone, without the course.
HAS_COURSE = os.path.isdir(os.path.join(os.path.dirname(__file__), "course"))
NO_COURSE = "this is the library alone; to use the course, work in a copy of its repository"

__all__ = sorted(name for name in _HOME if HAS_COURSE or not _HOME[name].startswith("hooklab.course"))


def __getattr__(name):  # type: ignore[no-untyped-def]
    if name not in _HOME:
        raise AttributeError("module 'hooklab' has no attribute {!r}".format(name))  # noqa: UP032
    if _HOME[name].startswith("hooklab.course") and not HAS_COURSE:
        raise ImportError("hooklab.{}: {}".format(name, NO_COURSE))  # noqa: UP032
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__():  # type: ignore[no-untyped-def]
    return sorted(set(globals()) | set(__all__))
