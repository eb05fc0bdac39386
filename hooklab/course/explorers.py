"""panel: controls above, a picture below, a sentence beneath it; redrawn whenever a control changes.

The picture is one image widget whose bytes are replaced, so it neither flickers nor changes its size, and no figure is
left in pyplot's list. What is drawn is a function of the controls' values alone; a position seen before comes from
memory.
"""

from __future__ import annotations

import functools
import html
import io
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets as widgets
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imsave
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from hooklab.course import plots

DPI = 100
WITHOUT_KERNEL = "an explorer: run this cell to get its controls"


class Explorer(widgets.VBox):  # type: ignore[misc]  # ipywidgets has no types
    """Controls and a picture; where no kernel runs, such as on GitHub, the picture with a line above it.

    Attributes:
        intro, draw, say, controls, shows: as `panel` was given them; the course's web page draws its own positions.
    """

    intro: str
    draw: Callable[..., Figure]
    say: Callable[..., str]
    controls: Mapping[str, widgets.Widget]
    shows: Callable[..., object]

    def __init__(self, children: Sequence[widgets.Widget], picture: widgets.Image, intro: str) -> None:
        super().__init__(children)
        self._picture = picture
        self.intro = intro

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**options)
        still = _with_line_above(self._picture.value)
        return bundle | {"text/plain": f"{WITHOUT_KERNEL}. {self.intro}", "image/png": still}


def _with_line_above(picture: bytes) -> bytes:
    """Return a PNG with WITHOUT_KERNEL above it."""
    pixels = np.asarray(Image.open(io.BytesIO(picture)))
    head = Figure(figsize=(pixels.shape[1] / DPI, 0.3), facecolor="white")
    head.text(0.01, 0.5, WITHOUT_KERNEL, va="center", fontsize=9, style="italic", color=plots.REST)
    return _as_png(np.vstack([_pixels(head), pixels]))


def panel(
    draw: Callable[..., Figure],
    say: Callable[..., str],
    controls: Mapping[str, widgets.Widget],
    *,
    intro: str,
    rows: Sequence[Sequence[widgets.Widget]] | None = None,
    shows: Callable[..., object] = dict,
) -> Explorer:
    """Return an explorer.

    Args:
        draw: takes the controls' values by name and returns the figure; it must not use pyplot.
        say: takes the same values and returns the sentence under the picture, which also serves as its description.
        controls: name -> widget with a `value`; the values must be hashable.
        intro: one sentence that says what to try.
        rows: how the widgets are laid out, row by row; by default one row with all controls.
        shows: takes the same values and returns what the picture depends on; for many positions with one picture.
    """
    picture = widgets.Image(format="png")
    sentence = widgets.HTML()

    @functools.lru_cache(maxsize=256)
    def position(values: tuple[Any, ...]) -> tuple[bytes, str, int]:
        named = dict(zip(controls, values, strict=True))
        figure = draw(**named)
        return png(figure), say(**named), round(figure.get_figwidth() * DPI)

    def show(_change: object = None) -> None:
        values = tuple(control.value for control in controls.values())
        picture.value, text, width = position(values)
        picture.layout.width = f"{width}px"
        picture.layout.max_width = "100%"
        sentence.value = f"<div aria-live='polite' style='{_TEXT}'>{html.escape(text)}</div>"

    for control in controls.values():
        control.observe(show, names="value")
    show()
    head = widgets.HTML(f"<div style='{_TEXT}'>{html.escape(intro)}</div>")
    rows = rows or [list(controls.values())]
    lines = [widgets.HBox(list(row), layout=widgets.Layout(flex_flow="row wrap")) for row in rows]
    explorer = Explorer([head, *lines, picture, sentence], picture, intro)
    explorer.draw, explorer.say, explorer.controls, explorer.shows = draw, say, controls, shows
    return explorer


def png(figure: Figure) -> bytes:
    """Return the figure as PNG bytes at the course's resolution.

    The same bytes as `figure.savefig` writes, in two thirds of the time: that one lays a figure out twice.
    """
    return _as_png(_pixels(figure))


def _pixels(figure: Figure) -> NDArray[np.uint8]:
    """Return the figure as an array of shape (height, width, 4)."""
    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def _as_png(pixels: NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    imsave(file, pixels, format="png")
    return file.getvalue()


def stepper(last: int, label: str = "step") -> tuple[widgets.IntSlider, widgets.Play, Callable[[int], None]]:
    """Return a slider from 0 to `last`, a play button linked to it, and a function that sets a new last step."""
    slider = widgets.IntSlider(0, 0, last, 1, description=label, continuous_update=True)
    play = widgets.Play(value=0, min=0, max=last, interval=900, show_repeat=False, tooltip="play the steps")
    widgets.jslink((play, "value"), (slider, "value"))

    def set_last(new: int) -> None:
        slider.max = play.max = new

    return slider, play, set_last


def stepwise(
    record: Callable[..., Sequence[Any]],
    draw: Callable[[Sequence[Any], int], Figure],
    switches: Mapping[str, widgets.Checkbox],
    *,
    intro: str,
    start: int = 0,
    shows: Callable[[Sequence[Any], int], object] = operator.getitem,
) -> Explorer:
    """Return an explorer of a recorded run: a row of switches, and below it a play button and a slider for the steps.

    Args:
        record: takes the switches' values by name and returns the steps of a run; each has a `text`.
        draw: takes the steps and the number of one.
        switches: name -> what can be switched on or off.
        intro: as for `panel`.
        start: the step that is shown first.
        shows: takes the steps and a number, and returns what the picture depends on.
    """
    recorded = functools.lru_cache(maxsize=16)(record)
    slider, play, set_last = stepper(len(recorded(**{name: one.value for name, one in switches.items()})) - 1)
    slider.value = start

    def at(step: int, **values: bool) -> tuple[Sequence[Any], int]:
        steps = recorded(**values)
        set_last(len(steps) - 1)
        return steps, min(step, len(steps) - 1)

    return panel(
        lambda **values: draw(*at(**values)),
        lambda **values: step_in_words(*at(**values)),
        {**switches, "step": slider},
        intro=intro,
        rows=[list(switches.values()), [play, slider]],
        shows=lambda **values: shows(*at(**values)),
    )


def step_in_words(steps: Sequence[Any], number: int) -> str:
    """Return the sentence for step `number` of a recorded run."""
    return f"Step {number} of {len(steps) - 1}: {steps[number].text}."


_TEXT = "color:var(--jp-content-font-color1,inherit);line-height:1.4;min-height:1.4em"


class Drawing(Figure):
    """A figure that a notebook shows as a picture although pyplot does not know it.

    Only pyplot's first figure teaches a notebook how to show one; before that, `display` writes the figure's name.
    """

    def _repr_png_(self) -> bytes:
        return png(self)


def canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure of this size in inches and one bare axes over all of it, without a layout engine.

    Laying out takes longer than drawing, and an explorer has to answer in a blink.
    """
    figure = Drawing(figsize=(width, height))
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    return figure, axes


def tile(axes: Axes, values: Tensor, corner: tuple[float, float], side: float, title: str, **look: Any) -> None:
    """Draw a small square image on a canvas whose units are inches; `look` goes to imshow.

    Many images on one axes are drawn several times faster than on an axes each.
    """
    left, bottom = corner
    axes.imshow(values.numpy(), extent=(left, left + side, bottom, bottom + side), interpolation="nearest", **look)
    axes.add_patch(Rectangle(corner, side, side, fill=False, ec="#BBBBBB", lw=0.8))
    axes.text(left + side / 2, bottom + side + 0.05, title, ha="center", va="bottom", fontsize=9)


def inches(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a canvas whose data units are inches."""
    figure, axes = canvas(width, height)
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.set_autoscale_on(False)
    return figure, axes
