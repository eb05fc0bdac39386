"""What lesson 11's figure shows, and the helpers of its cells."""

import matplotlib.pyplot as plt
import torch
from torch import nn

from hooklab.course.lesson11 import figures
from hooklab.course.lesson11.helpers import load, replace_weight, saved_bytes, still_fires


def test_the_figure_has_a_curve_for_each_way_and_a_bar_for_what_was_ever_sent():
    runs = {
        "all": ([0.5, 0.9], torch.zeros(4)),
        "1 % with feedback": ([0.4, 0.8], torch.tensor([1, 2, 0, 3])),
        "1 % without": ([0.1, 0.2], torch.tensor([5, 0, 0, 0])),
    }
    figure = figures.compressed(runs)
    left, right = figure.axes
    assert [list(line.get_ydata()) for line in left.lines] == [accuracies for accuracies, _ in runs.values()]
    assert [bar.get_height() for bar in right.patches] == [75.0, 25.0]
    plt.close(figure)


def test_a_hook_on_a_weight_fires_as_long_as_the_weight_is_the_same_object():
    assert still_fires(load)
    assert not still_fires(replace_weight)


def test_a_tensor_on_a_module_is_in_its_file():
    model = nn.Linear(2, 2)
    before = saved_bytes(model)
    model.seen = torch.zeros(1000)
    assert saved_bytes(model) > before + 4000
