"""What lesson 5's comparison of backward hooks says of real modules, and what its figures show."""

import copy

import matplotlib.pyplot as plt
import pytest
import torch
from torch import nn

from hooklab.course.lesson05 import figures as lesson05
from hooklab.course.lesson05.comparing import Entry, compare_hooks, nodes_inside
from hooklab.course.lesson05.transfer import POINTS, Network
from hooklab.course.plots import BACKWARD, CAPTURED, REST


def names(report):
    return [entry.of for entry in report.grad_input]


@pytest.mark.parametrize(
    ("module", "shape", "legacy"),
    [
        (nn.Linear(3, 2), (4, 3), ["bias", "input", "weight transposed"]),
        (nn.Linear(3, 3), (3, 3), ["bias", "input", "weight transposed"]),
        (nn.Linear(3, 2, bias=False), (4, 3), ["input", "weight transposed"]),
        (nn.Linear(3, 2), (5, 4, 3), ["output, reshaped"]),
        (nn.Conv2d(3, 2, 3), (4, 3, 5, 5), ["input", "weight", "bias"]),
        (nn.Conv2d(3, 2, 3, bias=False), (4, 3, 5, 5), ["input", "weight", "nothing"]),
        (nn.BatchNorm1d(3), (4, 3), ["input", "weight", "bias"]),
        (nn.Sequential(nn.Linear(3, 2), nn.Tanh()), (4, 3), ["inside"]),
        (nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)), (4, 3), ["1.bias", "inside", "1.weight transposed"]),
    ],
    ids=str,
)
def test_a_legacy_hook_reports_the_last_nodes_gradients_and_a_full_hook_the_inputs(module, shape, legacy):
    comparison = compare_hooks(module, shape)
    assert comparison.last_node.endswith("Backward0")
    assert names(comparison.legacy) == legacy
    assert comparison.full.grad_input == (Entry(shape, "input"),)


def test_random_modules_draw_the_same_numbers_in_each_run():
    assert names(compare_hooks(nn.Dropout(), (4, 5)).legacy)[0] == "input"


def test_the_module_and_the_random_numbers_of_the_caller_stay_as_they_are():
    module = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    before, random_state = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    compare_hooks(module, (4, 3))
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())
    assert not any(one._backward_hooks for one in module.modules())
    assert torch.equal(torch.get_rng_state(), random_state)


def test_a_module_that_works_in_place_shows_torchs_own_refusal():
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        compare_hooks(nn.ReLU(inplace=True), (2,))


def test_the_nodes_of_a_module_come_in_the_order_of_the_forward():
    x = torch.ones(4, 3, requires_grad=True)
    model = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1), nn.ReLU())
    assert nodes_inside(model(x), x) == ["AddmmBackward0", "TanhBackward0", "AddmmBackward0", "ReluBackward0"]


def test_nodes_of_an_output_that_does_not_depend_on_the_input_are_refused():
    x, elsewhere = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    with pytest.raises(ValueError, match="does not depend"):
        nodes_inside(2 * x, elsewhere)


def test_a_graph_with_shared_parts_is_walked_once():
    x, elsewhere = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    y = x
    for _ in range(40):  # 2 to the 40 ways
        y = y + y
    assert nodes_inside(y, x) == ["AddBackward0"] * 40
    with pytest.raises(ValueError, match="does not depend"):
        nodes_inside(y, elsewhere)


def test_the_table_has_an_entry_for_each_gradient_in_the_colour_of_its_kind():
    figure = lesson05.reports({"linear": compare_hooks(nn.Linear(3, 2), (5, 4, 3)), "conv": conv_comparison()})
    boxes = [patch.get_edgecolor() for patch in figure.axes[0].patches]
    wanted = [REST, BACKWARD, BACKWARD, CAPTURED, CAPTURED, BACKWARD]
    assert boxes == [plt.matplotlib.colors.to_rgba(colour) for colour in wanted]


def conv_comparison():
    return compare_hooks(nn.Conv2d(1, 2, 2), (2, 1, 3, 3))


def test_the_picture_of_a_layer_shows_its_own_numbers():
    layer, x = nn.Linear(2, 1), torch.tensor([[1.0, 2.0]], requires_grad=True)
    nn.init.constant_(layer.weight, 3.0)
    nn.init.constant_(layer.bias, 0.5)
    layer(x).sum().backward()
    shown = " ".join(texts(lesson05.around(layer, x, x.grad, torch.ones(1, 1))))
    for words in ("x = [[1, 2]]", "y = [[9.5]]", "weight.grad = [[1, 2]]", "bias.grad = [1]", "[[3, 3]]"):
        assert words in shown


def test_the_picture_of_a_node_has_an_arrow_for_each_edge_with_its_gradient():
    layer, x, leaving = nn.Linear(2, 1), torch.tensor([[1.0, 2.0]], requires_grad=True), []
    nn.init.constant_(layer.weight, 3.0)
    y = layer(x)
    with y.grad_fn.register_hook(lambda grad_inputs, grad_outputs: leaving.extend(grad_inputs)):
        y.sum().backward()
    named = dict(zip(("bias", "input", "weight, transposed"), leaving, strict=True))
    shown = texts(lesson05.edges(y.grad_fn, torch.ones(1, 1), named))
    for words in (
        "AddmmBackward0",
        "[0]  bias",
        "[1]  input",
        "[2]  weight, transposed",
        "[1]",
        "[[3, 3]]",
        "[[1], [2]]",
    ):
        assert words in shown
    assert [words for words in shown if words.startswith("goes on to")] == [
        "goes on to AccumulateGrad",
        "goes on to AccumulateGrad",
        "goes on to TBackward0",
    ]


def test_the_picture_of_two_domains_draws_every_point_and_says_how_much_can_be_read():
    figure = lesson05.two_domains({"untrained": Network()})
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["untrained"]
    assert sum(len(one.get_offsets()) for one in figure.axes[0].collections) == 2 * POINTS
    assert figure.axes[0].get_xlabel() == "neighbours of their own domain: 93%"


def test_the_picture_of_the_three_parts_has_every_point_and_the_labels_of_each_part():
    left, right = lesson05.two_domains_and_three_parts().axes
    assert sum(len(one.get_offsets()) for one in left.collections) == 2 * POINTS
    assert {"features", "classes", "labels of domain 0 only"} <= {text.get_text() for text in right.texts}


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]
