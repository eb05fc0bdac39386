"""The house style of the course's figures: `style`, `show`, the palette, and the pictures that several lessons share.

One meaning has one colour all through the course (Okabe-Ito, safe for colour-blind readers): forward is blue, backward
vermilion, what was captured or kept green, what was changed purple, the rest grey. Figures have a white background, so
that they can be read in JupyterLab's light and dark theme.
"""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
from cycler import cycler
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from torch import Tensor

FORWARD = "#0072B2"
BACKWARD = "#D55E00"
CAPTURED = "#009E73"
CHANGED = "#CC79A7"
REST = "#8A8A8A"
INK = "#222222"
# For values of both signs: vermilion below zero, white at zero, blue above.
SIGNED = LinearSegmentedColormap.from_list("signed", [BACKWARD, "white", FORWARD])

STYLE: Any = {
    "figure.dpi": 100,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": REST,
    "axes.labelcolor": INK,
    "axes.prop_cycle": cycler(color=[FORWARD, BACKWARD, CAPTURED, CHANGED, REST]),
    "legend.frameon": False,
    "lines.linewidth": 2,
    "image.cmap": "cividis",
    "figure.constrained_layout.use": True,
}


def style() -> Any:
    """Return a context manager that sets the house style: `with plots.style(): …`."""
    return plt.rc_context(STYLE)


def show(figure: Figure, alt: str) -> None:
    """Show a figure, stored with a sentence for readers who do not see it, and close it."""
    display(figure, metadata={"image/png": {"alt": alt}})  # type: ignore[no-untyped-call]
    plt.close(figure)


def bare(width: float, height: float, xlim: tuple[float, float], ylim: tuple[float, float]) -> tuple[Figure, Axes]:
    """Return a figure of this size in inches, and its axes, which show nothing of themselves."""
    figure, axes = plt.subplots(figsize=(width, height))
    axes.set(xlim=xlim, ylim=ylim)
    axes.axis("off")
    return figure, axes


def frame(axes: Axes, *, visible: bool = True) -> None:
    """Leave nothing of the axes but a thin frame; nothing at all, if it isn't visible."""
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(visible=visible, color=REST, linewidth=0.6)


def ink(axes: Axes, image: Tensor) -> None:
    """Draw an image of shape (height, width) as dark ink on white, from 0 to 1."""
    axes.imshow(image.detach().numpy(), cmap="Greys", vmin=0, vmax=1)


def box(
    axes: Axes, x: float, y: float, text: str, colour: str, width: float = 0.56, height: float = 0.52, **look: Any
) -> None:
    """Draw a labelled box around (x, y), in data units; `colour` is its edge, and `look` is the text's."""
    corner = (x - width / 2, y - height / 2)
    axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle="round,pad=0.03", fc="white", ec=colour, lw=2))
    axes.text(x, y, text, ha="center", va="center", **{"color": INK} | look)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    """Draw an arrow between two points in data units."""
    look = {"arrowstyle": "-|>", "color": colour, "lw": 1.6, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=end, xytext=start, arrowprops=look, zorder=1)
