/* After a click on a link to a cell (NN_slug.ipynb#cell-id=…), show that cell, and keep it at the top of its notebook.

JupyterLab lays out the cells of a notebook from the first to the last, as time permits, and scrolls to the linked one
once. What the cells above get later, such as outputs, images and formulas, pushes it away. So it is laid out first, and
brought back until the notebook has come to rest, or the reader does something.

Written by hand in the form that JupyterLab loads: nothing is built. */

const EVERY = 100, AT_REST = 3000; // milliseconds
const SCREENFUL = 8; // cells
const READER = ["wheel", "mousedown", "keydown", "touchstart"];

function layOut(notebook, cell, index) {
  if (cell.isPlaceholder() && !notebook.viewModel.windowingActive) {
    cell.node.dataset.windowedListIndex = index;
    notebook.layout.insertWidget(index, cell);
  }
}

async function keepInSight(app, path, id) {
  let place, moved = Date.now(), isOver = false;
  const end = () => (isOver = true);
  READER.forEach((name) => document.addEventListener(name, end, { capture: true, once: true }));
  while (!isOver && Date.now() - moved < AT_REST) {
    const { context, content: notebook } = app.shell.currentWidget ?? {};
    const cells = context?.path === path && context.isReady ? notebook.widgets : [];
    const index = cells.findIndex((cell) => cell.model.id === id);
    const node = cells[index]?.node;
    const isSeen = node?.offsetHeight > 0; // not while the kernel starts
    if (!isSeen || node.getBoundingClientRect().top !== place || cells.some((cell) => cell.isPlaceholder())) {
      moved = Date.now();
    }
    if (node) {
      cells.slice(index, index + SCREENFUL).forEach((cell, after) => layOut(notebook, cell, index + after));
      notebook.activeCellIndex = index; // the browser holds the active cell in place, and no other one
      node.scrollIntoView();
      place = node.getBoundingClientRect().top;
    }
    await new Promise((wake) => setTimeout(wake, EVERY));
  }
  READER.forEach((name) => document.removeEventListener(name, end, { capture: true }));
}

const plugin = {
  id: "hooklab-links:plugin",
  autoStart: true,
  activate: (app) => {
    app.commands.commandExecuted.connect((_, { id, args }) => {
      const cell = /^#cell-id=(.+)$/.exec(args.id ?? "");
      if (id === "rendermime:handle-local-link" && cell) {
        void keepInSight(app, args.path, cell[1]);
      }
    });
  },
};

(window._JUPYTERLAB ??= {})["hooklab-links"] = { init: () => {}, get: () => () => plugin };
