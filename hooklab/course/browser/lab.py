"""Lab and Notebook: JupyterLab in a browser tab, used as a person uses it.

What a person does is done with the mouse and the keyboard. What a person would see by scrolling through the whole
notebook is read from the notebook's model: a cell off the screen has no text in the page, and there a warning on stderr
looks the same as an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page

from hooklab.course.browser.jupyter import Server

LIGHT, DARK = "JupyterLab Light", "JupyterLab Dark"
WIDTH, HEIGHT = 1400, 900
SECONDS_TO_OPEN = 120
SECONDS_TO_ACT = 60
SECONDS_TO_RUN = 300
LOOK_EVERY = 200  # milliseconds; by default Playwright looks sixty times a second, which slows down what it waits for

# The open notebook: the tab's current widget.
_OPEN = "const open = window.jupyterapp.shell.currentWidget;"


@dataclass
class Lab:
    """A tab with JupyterLab in it.

    Attributes:
        errors: errors from the browser's console, and uncaught exceptions.
    """

    page: Page
    server: Server
    errors: list[str] = field(default_factory=list)

    @classmethod
    def start(cls, browser: Browser, server: Server) -> Lab:
        """Open a tab with JupyterLab and nothing in it."""
        context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, reduced_motion="reduce")
        lab = cls(context.new_page(), server)
        lab.page.set_default_timeout(1000 * SECONDS_TO_ACT)
        lab.page.on("console", lab._note)
        lab.page.on("pageerror", lambda error: lab.errors.append(f"uncaught: {error.stack or error}"))
        lab.page.on("crash", lambda page: lab.errors.append("the tab has crashed"))
        lab.page.goto(server.address())
        lab.page.locator(".jp-Launcher").wait_for(timeout=1000 * SECONDS_TO_OPEN)
        return lab

    def open(self, path: str) -> Notebook:
        """Open a notebook of the server's folder, and wait until its kernel is connected and idle.

        Before that, "Run All Cells" would be lost without a word.
        """
        _execute(self.page, "docmanager:open", path=path)
        self.page.wait_for_function(
            f"""path => {{
                {_OPEN}
                const kernel = open?.sessionContext?.session?.kernel;
                return open?.context?.path === path && open.context.isReady && open.content.widgets.length > 0
                    && kernel?.connectionStatus === 'connected' && kernel.status === 'idle';
            }}""",
            arg=path,
            polling=LOOK_EVERY,
            timeout=1000 * SECONDS_TO_OPEN,
        )
        return Notebook(self.page)

    def activate(self, path: str) -> None:
        """Bring the tab of a notebook that is open to the front."""
        self.page.evaluate(
            "path => window.jupyterapp.shell.activateById("
            "[...window.jupyterapp.shell.widgets('main')].find(widget => widget.context?.path === path).id)",
            path,
        )

    def set_theme(self, name: str) -> None:
        """Set the theme, as the menu does: a setting of this server's, which stays until it is set again."""
        _execute(self.page, "apputils:change-theme", theme=name)
        self.page.locator(f"body[data-jp-theme-name='{name}']").wait_for(state="attached")

    def hide_sidebar(self) -> None:
        """Fold away the file browser."""
        self.page.evaluate("() => window.jupyterapp.shell.collapseLeft()")

    def close_launcher(self) -> None:
        """Close the tab that offers new notebooks."""
        self.page.evaluate(
            "() => [...window.jupyterapp.shell.widgets('main')]"
            ".filter(widget => widget.node.querySelector('.jp-Launcher')).forEach(widget => widget.dispose())"
        )

    def _note(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(f"{message.text} ({message.location['url']})")


@dataclass
class Notebook:
    """The notebook that is open in the tab; a cell is named by its index, counted from 0, markdown included."""

    page: Page

    @property
    def window(self) -> Locator:
        """The part of the tab that holds the notebook's cells."""
        return self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook")

    def cells(self) -> list[dict[str, Any]]:
        """Return the cells as the notebook file would hold them now, with the outputs so far."""
        cells: list[dict[str, Any]] = self.page.evaluate(
            f"() => {{ {_OPEN} return open.context.model.toJSON().cells; }}"
        )
        return cells

    def run_all(self) -> None:
        """Clear the stored outputs, choose Run > Run All Cells, and wait until every cell has run or one has failed."""
        _execute(self.page, "notebook:clear-all-cell-outputs")
        self.menu("Run", "Run All Cells")
        self.page.wait_for_function(
            f"""() => {{
                {_OPEN}
                const code = [...open.content.model.cells].filter(cell => cell.type === 'code');
                const failed = cell => cell.outputs.toJSON().some(output => output.output_type === 'error');
                return open.sessionContext.session.kernel.status === 'idle'
                    && code.every(cell => cell.executionState !== 'running')
                    && (code.every(cell => cell.executionCount !== null) || code.some(failed));
            }}""",
            polling=LOOK_EVERY,
            timeout=1000 * SECONDS_TO_RUN,
        )

    def run_cell(self) -> None:
        """Press Shift+Enter, which runs the active cell and goes to the next, and wait until it has run."""
        index, count = self.page.evaluate(
            f"() => {{ {_OPEN} return [open.content.activeCellIndex, open.content.activeCell.model.executionCount]; }}"
        )
        self.page.keyboard.press("Shift+Enter")
        self.page.wait_for_function(
            f"""([index, before]) => {{
                {_OPEN}
                const cell = open.content.model.cells.get(index);
                return ![null, before].includes(cell.executionCount) && cell.executionState !== 'running';
            }}""",
            arg=[index, count],
            polling=LOOK_EVERY,
            timeout=1000 * SECONDS_TO_RUN,
        )

    def menu(self, *names: str) -> None:
        """Click through the menu bar."""
        for name in names:
            self.page.get_by_role("menuitem", name=name, exact=True).click()

    def show(self, index: int) -> Locator:
        """Scroll to a cell, as far up as it goes, and return it."""
        self.page.evaluate(f"index => {{ {_OPEN} return open.content.scrollToItem(index, 'start'); }}", index)
        cell = self.window.locator(f".jp-Cell[data-windowed-list-index='{index}']")
        cell.wait_for()
        cell.evaluate("cell => cell.scrollIntoView()")  # once more, now that the cells above have their true heights
        return cell

    def close(self) -> None:
        """Close the notebook without saving, once its kernel has ended. This does not wait for that."""
        self.page.evaluate(f"() => {{ {_OPEN} void open.sessionContext.shutdown().then(() => open.dispose()); }}")


def _execute(page: Page, command: str, **arguments: str) -> None:
    """Execute one of JupyterLab's commands: what an entry of its menus does. Its result stays in the page."""
    script = "async ([command, arguments_]) => { await window.jupyterapp.commands.execute(command, arguments_); }"
    page.evaluate(script, [command, arguments])
