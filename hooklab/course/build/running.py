"""Runs notebooks in fresh kernels, two at a time, and finds what is wrong with what a run left in them."""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hooklab.course import words
from hooklab.course.build.draft import Draft
from hooklab.course.build.sources import FOLDER, Variant, solution_lines, stubbed
from hooklab.course.kernels import environment, prepare_fonts

AT_ONCE = 2
SECONDS_PER_CELL = 120
_WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"

# What a check says in a notebook, and what a prediction does, for which the builder never makes a guess.
WANTED: dict[Variant, str] = {"lesson": words.OUTCOMES["not attempted"], "solution": words.OUTCOMES["correct"]}
UNGUESSED = words.OUTCOMES["no guess"]
# A shorter line, such as `return x` or `else:`, gives nothing away.
TELLING = 12
ANSWERS = {"predict", "folded"}  # the tags of cells whose output answers a prediction: lessons store it folded
_OUTCOME = re.compile(rf"[✓○✗] \d+\.\w+ ({'|'.join(words.OUTCOMES.values())})\b")
_FENCED = re.compile(r"^```python\n(.*?)^```", re.M | re.S)


@dataclass
class Run:
    """A notebook of a draft to run; its outputs are put into it."""

    draft: Draft
    variant: Variant
    notebook: Any
    problems: list[str] = field(default_factory=list)


def execute_all(runs: list[Run], root: Path) -> None:
    """Run every notebook to its end or its first error, and print when it begins and how it ends.

    An error in one does not stop another.
    """
    prepare_fonts()
    with tempfile.TemporaryDirectory(prefix="hooklab-build-") as scratch:
        asyncio.run(_execute_all(runs, environment(root, Path(scratch))))


async def _execute_all(runs: list[Run], env: dict[str, str]) -> None:
    free = asyncio.Semaphore(AT_ONCE)

    async def one(run: Run) -> None:
        label = f"{FOLDER[run.variant]}/{run.draft.lesson.name}"
        async with free:
            begun = time.monotonic()
            print(f"{label}: running {len(run.notebook.cells)} cells", flush=True)
            if (fault := await _execute(run, env)) is not None:
                run.problems.append(_problem(run.draft, run.variant, *fault))
            how = "FAILED" if run.problems else "ran"
            print(f"{label}: {how} in {time.monotonic() - begun:.1f} s", flush=True)

    await asyncio.gather(*map(one, runs))


async def _execute(run: Run, env: dict[str, str]) -> tuple[int, str] | None:
    """Run a notebook; return the index of the cell that went wrong, and how."""
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    folder = run.draft.lesson.notebook(run.variant).parent
    folder.mkdir(exist_ok=True)
    # No folder to look for kernels in leaves one kernel: the Python that builds, whatever is installed.
    manager = AsyncKernelManager(kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
    client = NotebookClient(
        run.notebook,
        km=manager,
        extra_arguments=["--log-level=ERROR"],  # no warnings among the problems
        timeout=SECONDS_PER_CELL,
        record_timing=False,
        # By default an output that comes 4 s late, on a busy machine, is left out without a word.
        iopub_timeout=SECONDS_PER_CELL,
        raise_on_iopub_timeout=True,
    )
    index = 0
    try:
        # Each step by hand: NotebookClient.execute() takes over Ctrl-C, and for one notebook only.
        await client.async_start_new_kernel(cwd=str(folder), env=env)
        await client.async_start_new_kernel_client()
        executed = 0
        for index, cell in enumerate(run.notebook.cells):
            if cell.cell_type == "code":
                executed += 1
                await client.async_execute_cell(cell, index, execution_count=executed)
                cell.outputs = _joined(cell.outputs)
                for output in cell.outputs:  # a widget's id is random, and without a kernel it shows nothing
                    output.get("data", {}).pop(_WIDGET_VIEW, None)
    except CellExecutionError as error:
        return index, f"raised {error.ename}: {error.evalue}".split("\n")[0] + _at_line(error.traceback)
    except CellTimeoutError:
        return index, f"did not end within {SECONDS_PER_CELL} s"
    except (DeadKernelError, RuntimeError) as error:
        return index, f"the kernel died: {error}"
    finally:
        if client.kc is not None:
            client.kc.stop_channels()
        await manager.shutdown_kernel(now=True)
    return None


def _joined(outputs: list[Any]) -> list[Any]:
    """Return the outputs with text in one piece up to the next picture: how a kernel cuts it depends on timing."""
    joined: list[Any] = []
    for one in outputs:
        if joined and one.output_type == joined[-1].output_type == "stream" and one.name == joined[-1].name:
            joined[-1].text += one.text
        else:
            joined.append(one)
    return joined


def _at_line(traceback: str) -> str:
    """Return which line of the cell raised, as far as the traceback tells."""
    lines = re.findall(r"Cell In\[\d+\], line (\d+)", re.sub(r"\x1b\[[0-9;]*m", "", traceback))
    return f" (line {lines[-1]} of a cell)" if lines else ""


# --- what a run left


def findings(notebook: Any, draft: Draft, variant: Variant) -> list[str]:
    """Return everything that is wrong with what a run left in a notebook of the draft, in the order of its cells.

    The same rules for a notebook just run and for a committed one.
    """
    secret = _secret_lines(draft) if variant == "lesson" else []
    changing = _changing(draft.lesson.root)
    problems, expected = [], 0
    for index, cell in enumerate(notebook.cells):
        shown = _shown(cell)
        faults = list(_tag_faults(cell, shown, variant))
        if cell.cell_type == "code":
            expected += 1
            if cell.execution_count != expected:
                faults.append(f"execution count {cell.execution_count}, expected {expected}: run from top to bottom")
            faults += [f"it raised {output.ename}" for output in cell.outputs if output.output_type == "error"]
        if found := changing.search(shown):
            faults.append(f"the output holds {found[0]!r}, which is different in another run or on another machine")
        visible = f"{cell.source}\n{shown}"  # prose, hints and outputs as well as code
        faults += [f"it holds a line of a solution: {line!r}" for line in secret if line in visible]
        problems += [_problem(draft, variant, index, what) for what in faults]
    return problems


def _problem(draft: Draft, variant: Variant, index: int, what: str) -> str:
    return draft.cells[index].problem(f"in the {variant}: {what}")


def _tag_faults(cell: Any, shown: str, variant: Variant) -> Iterator[str]:
    """Find outputs that are not what the cell's tags promise."""
    tags, outcome = cell.metadata.get("tags", []), _OUTCOME.search(shown)
    came = outcome[1] if outcome else None
    wanted = WANTED[variant] if "check" in tags else UNGUESSED if cell.source.startswith("reveal(") else None
    if wanted and came != wanted:
        yield f"the outcome is {came!r}, expected {wanted!r}"
    if variant == "lesson" and ANSWERS.intersection(tags) and not shown.startswith(f"{words.CAME_OUT}\n"):
        yield f"a folded output shows its first line, so the cell must first print {words.CAME_OUT!r}"


def _changing(root: Path) -> re.Pattern[str]:
    """Return a pattern for what differs in each run, a memory's address, or on each machine, a path."""
    paths = [root, Path.home(), Path(tempfile.gettempdir()), Path(sys.prefix)]
    ours = [re.escape(str(path)) + r"(?![\w.-])" for path in paths if len(path.parts) > 1]
    return re.compile("|".join([r"\bat 0x[0-9a-fA-F]+", r"ipykernel_\d+", *ours]))


def _secret_lines(draft: Draft) -> list[str]:
    """Return the lines of the solutions that a lesson must not hold.

    A line that the lesson itself shows is allowed: in a code cell outside the solutions, or in the fenced script that
    a card asks the reader to fix.
    """
    given = [stubbed(cell.text) for cell in draft.cells if cell.kind == "code"]
    given += [script for one in draft.exercises for script in _FENCED.findall(one.card.text)]
    taught = {line.strip() for text in given for line in text.split("\n")}
    lines = {line for one in draft.exercises for line in solution_lines(one.solution.text) if len(line) >= TELLING}
    return sorted(lines - taught)


def _shown(cell: Any) -> str:
    """Return what a cell's outputs show as text."""
    shown: list[str] = []
    for output in cell.get("outputs", []):
        data = {"text/plain": output.get("text", "")} | output.get("data", {})
        shown += [text for kind, text in data.items() if kind.startswith("text/") or kind == "image/svg+xml"]
    return "\n".join(shown)
