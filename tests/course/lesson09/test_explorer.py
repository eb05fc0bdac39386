"""The explorers and figures of lesson 9 show what was computed."""

import matplotlib.pyplot as plt
import pytest
import torch

from hooklab.course.lesson09 import copying, explorer, figures, heads, shapes


def test_the_sentence_says_where_the_map_is_largest(monkeypatch):
    made, spot = explorer.some_pictures(), torch.zeros(32, 32)
    monkeypatch.setattr(explorer, "map_of", lambda *position: spot)
    for where, (row, column) in {
        "the tag": (2, 2),
        "the shape": made.masks[0].nonzero()[0],
        "neither": (31, 0),
    }.items():
        spot.zero_()
        spot[row, column] = 1.0
        assert f"points at {where};" in explorer.describe_map(0, "random weights", "occlusion", "block3")


def test_the_sentence_tells_an_induction_head_and_what_its_loss_costs():
    made = explorer.some_sequences()
    answer = int(made.tokens[0, 21])
    assert "the token after an earlier copy" in explorer.describe_head(0, (1, 0), 20, "none")
    assert f"says {answer}; right is {answer}." in explorer.describe_head(0, (1, 0), 20, "this head")
    assert f"says {answer};" not in explorer.describe_head(0, (1, 0), 20, "both heads of its layer")
    assert "can't be known yet" in explorer.describe_head(0, (1, 0), 0, "none")


def test_a_heat_map_marks_its_largest_number():
    values = torch.zeros(1, 32, 32)
    values[0, 8, 16] = 1.0
    figure = figures.maps(shapes.pictures(1, seed=0), {"a": values}, count=1)
    (dot,) = figure.axes[0].lines
    left, _, _, top = figure.axes[0].images[1].get_extent()
    side = top - figure.axes[0].images[1].get_extent()[2]
    assert (dot.get_xdata()[0] - left) / side == pytest.approx(16.5 / 32)
    assert (top - dot.get_ydata()[0]) / side == pytest.approx(8.5 / 32)


def test_the_other_figures_show_what_they_are_given():
    board = figures.scoreboard({"a": {"x": 0.1, "y": 0.9}, "b": {"x": 0.2, "y": 0.8}}, "share", (0.3, "chance"))
    assert [list(line.get_xdata()) for line in board.axes[0].lines] == [[0.3, 0.3], [0.1, 0.2], [0.9, 0.8]]
    bars = figures.bars({"a": 0.25, "b": 1.0}, "share", ["b"])
    assert [text.get_text() for text in bars.axes[0].texts] == ["0.25", "1.00"]
    doses = figures.doses({"up": torch.tensor([0.0, 1.0]), "no": torch.tensor([0.0, 0.0])}, [0.0, 2.0], "share")
    assert [list(line.get_ydata()) for line in doses.axes[0].lines] == [[0.0, 1.0], [0.0, 0.0]]
    carried = figures.carried(torch.eye(3, 23), list(range(23)), broken=1)
    assert [text.get_text() for text in carried.axes[0].texts].count("1.0") == 3
    assert "0.0" not in [text.get_text() for text in carried.axes[0].texts]
    pattern = heads.patterns(copying.trained_copier(), copying.sequences(1, seed=0).inputs)[:, 0]
    assert len(figures.attention(pattern, torch.arange(23), 8).axes) == 4
    signed = torch.linspace(-1, 2, 32 * 32).reshape(1, 32, 32)
    pairs = {"signed": (signed, -signed), "size": (signed.abs(), signed.abs())}
    two = figures.two_classes(shapes.pictures(1, seed=0), torch.tensor([1]), pairs, {"signed": -1.0, "size": 1.0})
    assert [image.get_clim() for image in two.axes[0].images[1:]] == [(-2.0, 2.0), (-2.0, 2.0), (0.0, 2.0), (0.0, 2.0)]
    assert {"−1.0", "1.0"} <= {text.get_text() for text in two.axes[0].texts}
    plt.close("all")
