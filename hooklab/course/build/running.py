"""Runs notebooks in fresh kernels, two at a time, and finds what is wrong with what a run left in them."""

from __future__ import annotations

import ast
import asyncio
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hooklab.course import words
from hooklab.course.build.draft import Draft
from hooklab.course.build.sources import Variant, solution_lines, stubbed
from hooklab.course.kernels import LEFT_BEHIND, environment, prepare_fonts

if TYPE_CHECKING:  # to look at what a run left takes neither
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

AT_ONCE = 2
SECONDS_PER_CELL = 120
_WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"

Finding = tuple[int, str]  # a cell's index, and what is wrong there
WANTED: dict[Variant, str] = {"lesson": words.OUTCOMES["not attempted"], "solution": words.OUTCOMES["correct"]}
# A shorter line, such as `return x` or `else:`, gives nothing away.
TELLING = 12
ANSWERS = {"predict", "folded"}  # the tags of cells whose output answers a prediction: lessons store it folded
_OUTCOME = re.compile(rf"[✓○✗] \d+\.\d+ ({'|'.join(words.OUTCOMES.values())})\b")
_NOT_SCORED = re.compile(rf"[✓○✗] \d+\.[a-z] {words.OUTCOMES['not scored']}\b.*")
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+")
_FENCED = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
_KERNEL_FILE = re.compile(r"ipykernel_\d+")


@dataclass
class Run:
    """A notebook to run in a folder; its outputs are put into it. `faults` are (cell index or None, what) pairs."""

    label: str
    notebook: Any
    folder: Path
    faults: list[tuple[int | None, str]] = field(default_factory=list)


def execute_all(runs: list[Run], root: Path) -> None:
    """Run every notebook to its end or its first error, and print when it begins and how it ends.

    An error in one does not stop another.
    """
    prepare_fonts()
    with tempfile.TemporaryDirectory(prefix="hooklab-build-") as scratch:
        asyncio.run(_execute_all(runs, environment(root, Path(scratch)), Path(scratch)))


async def _execute_all(runs: list[Run], env: dict[str, str], scratch: Path) -> None:
    free = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, run: Run) -> None:
        async with free:
            begun = time.monotonic()
            print(f"{run.label}: running {len(run.notebook.cells)} cells", flush=True)
            await _execute(run, env, scratch / f"kernel-{number}")
            how = "FAILED" if run.faults else "ran"
            print(f"{run.label}: {how} in {time.monotonic() - begun:.1f} s", flush=True)

    await asyncio.gather(*(one(number, run) for number, run in enumerate(runs)))


async def _execute(run: Run, env: dict[str, str], scratch: Path) -> None:
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    run.folder.mkdir(parents=True, exist_ok=True)
    scratch.mkdir()
    log = scratch / "log.txt"  # what the kernel says of itself; what a cell prints is in the cell's outputs
    # No folder to look for kernels in leaves one kernel: the Python that builds, whatever is installed.
    manager = AsyncKernelManager(
        kernel_spec_manager=KernelSpecManager(kernel_dirs=[]), connection_file=str(scratch / "kernel.json")
    )
    client = NotebookClient(
        run.notebook,
        km=manager,
        timeout=SECONDS_PER_CELL,
        record_timing=False,
        coalesce_streams=True,  # how a kernel cuts printed text depends on timing
        # By default an output that comes 4 s late, on a busy machine, is left out without a word.
        iopub_timeout=SECONDS_PER_CELL,
        raise_on_iopub_timeout=True,
    )
    index: int | None = None
    try:
        # Each step by hand: NotebookClient.execute() takes over Ctrl-C, and for one notebook only.
        with log.open("wb") as stderr:
            await client.async_start_new_kernel(cwd=str(run.folder), env=env, stderr=stderr)
        await client.async_start_new_kernel_client()
        executed = 0
        for index, cell in enumerate(run.notebook.cells):
            if cell.cell_type == "code":
                executed += 1
                await client.async_execute_cell(cell, index, execution_count=executed)
                for output in cell.outputs:  # a widget's id is random, and without a kernel it shows nothing
                    output.get("data", {}).pop(_WIDGET_VIEW, None)
        index = None
        if left := await _left_behind(client):
            run.faults.append((None, f"the notebook leaves global hooks behind: {', '.join(left)}"))
    except CellExecutionError as error:
        run.faults.append((index, f"raised {error.ename}: {error.evalue}".split("\n")[0] + _at_line(error)))
    except CellTimeoutError:
        run.faults.append((index, f"did not end within {SECONDS_PER_CELL} s"))
    except (DeadKernelError, RuntimeError) as error:
        run.faults.append((index, f"the kernel died: {_last_words(log) or error}"))
    finally:
        if client.kc is not None:
            client.kc.stop_channels()
        if manager.has_kernel:
            await manager.shutdown_kernel(now=True)
        await manager.cleanup_resources()


async def _left_behind(client: NotebookClient) -> list[str]:
    assert client.kc is not None
    message = client.kc.execute("", silent=True, user_expressions={"left": LEFT_BEHIND})
    reply = await client.async_wait_for_reply(message)
    assert reply is not None
    names: list[str] = ast.literal_eval(reply["content"]["user_expressions"]["left"]["data"]["text/plain"])
    return names


def _at_line(error: CellExecutionError) -> str:
    """Return which line of the cell raised, as far as the traceback tells."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", error.traceback)
    lines = re.findall(r"Cell In\[\d+\], line (\d+)|<ipython-input[^>]*>.*, line (\d+)", plain)
    return f" (line {next(filter(None, lines[-1]))} of a cell)" if lines else ""


def _last_words(log: Path) -> str:
    """Return the first line that a crashed kernel wrote, such as `Fatal Python error: Segmentation fault`."""
    lines = log.read_text(errors="replace").splitlines()
    return next((line for line in lines if line.strip() and not line.startswith("[IPKernelApp]")), "")


# --- what a run left


def findings(notebook: Any, draft: Draft, variant: Variant) -> list[Finding]:
    """Return everything that is wrong with what a run left in a notebook, in the order of its cells.

    The same rules for a notebook just run and for a committed one.
    """
    found = list(unrun(notebook.cells))
    secret = _secret_lines(draft) if variant == "lesson" else []
    for index, cell in enumerate(notebook.cells):
        faults = [*_output_faults(cell, draft.lesson.root), *_tag_faults(cell, variant)]
        visible = "\n".join([cell.source, *_texts(cell)])  # prose, hints and outputs as well as code
        faults += [f"the lesson holds a line of a solution: {line!r}" for line in secret if line in visible]
        found += [(index, what) for what in faults]
    return sorted(found, key=lambda finding: finding[0])


def unrun(cells: list[Any]) -> Iterator[Finding]:
    """Find the code cells that were not run once each, from top to bottom."""
    expected = 0
    for index, cell in enumerate(cells):
        if cell["cell_type"] != "code":
            continue
        expected += 1
        count = cell["execution_count"]
        if count is None:
            yield index, "this cell was not run"
        elif count != expected:
            yield index, f"execution count {count}, expected {expected}: not run once from top to bottom"


def _output_faults(cell: Any, root: Path) -> Iterator[str]:
    """Find errors, and output that differs from run to run or from machine to machine."""
    for output in cell.get("outputs", []):
        if output.output_type == "error":
            yield f"an error in the output: {output.ename}"
    for text in _texts(cell):
        if address := _ADDRESS.search(text):
            yield f"the output holds a memory address, which differs in each run: {address[0]!r}"
        if path := _machine_path(text, root):
            yield f"the output holds a path of the machine that ran it: {path!r}"


def _tag_faults(cell: Any, variant: Variant) -> Iterator[str]:
    """Find outputs that are not what the cell's tags promise."""
    tags = cell.metadata.get("tags", [])
    if "check" in tags:
        outcomes = [match[1] for text in _texts(cell, "text/plain") if (match := _OUTCOME.match(text))]
        if not outcomes:
            yield f'no outcome of a check in the output, expected "{WANTED[variant]}"'
        elif outcomes[0] != WANTED[variant]:
            yield f'the {variant}\'s check says "{outcomes[0]}", expected "{WANTED[variant]}"'
    kinds = [kind for output in cell.get("outputs", []) for kind in output.get("data", {})]
    seen = {"figure", "explorer"}.intersection(tags)
    if seen and not any(kind.startswith("image/") for kind in kinds):  # but the name of a figure, for example
        yield f"tagged as {seen.pop()}, but the output has no picture"
    if variant == "lesson" and ANSWERS.intersection(tags) and not _begins_folded(cell):
        yield f"a folded output shows its first line, so the cell must first print {words.CAME_OUT!r}"
    for text in _texts(cell, "text/plain"):
        if _NOT_SCORED.match(text):
            yield f"what came out does not fit exactly one choice: {text}"


def _begins_folded(cell: Any) -> bool:
    outputs = cell.get("outputs", [])
    return bool(outputs) and str(outputs[0].get("text", "")).startswith(f"{words.CAME_OUT}\n")


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


def _texts(cell: Any, only: str = "") -> Iterator[str]:
    """Yield what a cell's outputs show as text, of all kinds or of one."""
    for output in cell.get("outputs", []):
        if output.output_type == "stream" and not only:
            yield output.text
        for kind, text in output.get("data", {}).items():
            if kind == only or (not only and (kind.startswith("text/") or kind == "image/svg+xml")):
                yield text


def _machine_path(text: str, root: Path) -> str | None:
    if match := _KERNEL_FILE.search(text):
        return match[0]
    for path in (root, Path.home(), Path(tempfile.gettempdir()), Path(sys.prefix)):
        if len(path.parts) > 1 and re.search(rf"{re.escape(str(path))}(?![\w.-])", text):
            return str(path)
    return None
