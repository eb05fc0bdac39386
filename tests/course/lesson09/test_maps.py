"""Lesson 9's pictures, networks and maps: what the lesson leans on."""

import pytest
import torch
from torch import nn

import hooklab
from hooklab.course.lesson09 import maps, shapes

each_method = pytest.mark.parametrize("method", maps.METHODS)


@pytest.fixture(scope="module")
def made():
    return shapes.pictures(12, seed=0, tags="random")


@pytest.fixture(scope="module")
def model():
    return shapes.untrained()


def test_the_mask_is_where_the_picture_differs_from_its_ground():
    made = shapes.pictures(200, seed=1, tags=None)
    inside = (made.images * made.masks.unsqueeze(1)).sum((2, 3)) / made.masks.sum((1, 2)).unsqueeze(1)
    outside = (made.images * (1 - made.masks).unsqueeze(1)).sum((2, 3)) / (1 - made.masks).sum((1, 2)).unsqueeze(1)
    spread = (made.images - outside.view(200, 3, 1, 1)).mul((1 - made.masks).unsqueeze(1))
    assert spread.std() < 0.1  # nothing but noise outside the shape
    assert ((inside - outside).norm(dim=1) > 0.1).float().mean() > 0.9
    assert 0.05 < made.masks.mean() < 0.2 and made.masks.flatten(1).sum(1).min() > 20


@pytest.mark.parametrize("tags", ["own", "random", None])
def test_a_tag_is_the_colour_of_the_label_or_not(tags):
    made = shapes.pictures(60, seed=2, tags=tags)
    tagged = (
        (made.images[:, :, shapes.TAG, shapes.TAG] == torch.eye(3)[made.labels].view(60, 3, 1, 1)).flatten(1).all(1)
    )
    assert {"own": tagged.all(), "random": 5 < tagged.sum() < 40, None: not tagged.any()}[tags]


def test_unknown_tags_are_refused():
    with pytest.raises(ValueError, match="'own', 'random' or None, not 'mine'"):
        shapes.pictures(1, seed=0, tags="mine")


def test_the_shape_never_touches_the_tag():
    assert not (shapes.pictures(500, seed=3).masks * shapes.tag_masks(500)).any()


def test_making_a_network_leaves_the_callers_random_numbers_alone():
    before = torch.get_rng_state()
    assert torch.equal(shapes.untrained(3).head.weight, shapes.untrained(3).head.weight)
    assert torch.equal(torch.get_rng_state(), before)


@each_method
def test_a_map_has_a_number_for_each_pixel_and_leaves_nothing_behind(method, model, made):
    found = maps.METHODS[method](model, made.images, made.labels)
    assert found.shape == (12, 32, 32) and found.min() >= 0 and not found.requires_grad
    assert hooklab.leftover_hooks(model) == []
    assert all(parameter.grad is None for parameter in model.parameters()) and not made.images.requires_grad


@each_method
def test_a_map_of_one_picture_does_not_depend_on_the_others(method, model, made):
    together = maps.METHODS[method](model, made.images, made.labels)
    alone = maps.METHODS[method](model, made.images[4:5], made.labels[4:5])
    assert torch.allclose(together[4:5], alone, atol=1e-5)


@each_method
def test_maps_can_be_made_under_no_grad_and_of_a_frozen_network(method, made):
    frozen = shapes.untrained().requires_grad_(False)
    wanted = maps.METHODS[method](shapes.untrained(), made.images, made.labels)
    with torch.no_grad():
        assert torch.allclose(maps.METHODS[method](frozen, made.images, made.labels), wanted, atol=1e-6)


@pytest.mark.parametrize("layer", ["block1", "block2", "block3"])
def test_grad_cam_of_a_layer_is_what_its_formula_says(layer, model, made):
    with hooklab.capture(model, layer, grads=True) as seen:
        model(made.images)[torch.arange(12), made.labels].sum().backward()
    model.zero_grad()
    weights = seen.grad(layer).mean((2, 3), keepdim=True)
    wanted = maps.resized((weights * seen[layer]).sum(1).clamp(min=0))
    assert torch.allclose(maps.grad_cam(model, made.images, made.labels, layer), wanted, atol=1e-6)


def test_occlusion_is_zero_where_the_network_does_not_look(made):
    class Corner(nn.Module):
        def forward(self, images):
            return torch.stack([images[:, 0, 30, 30], -images[:, 0, 30, 30], 0 * images[:, 0, 0, 0]], dim=1) * 10

    found = maps.occlusion(Corner(), made.images, made.labels)
    assert found[:, :24, :].max() == 0 and found[:, :, :24].max() == 0
    assert found[made.labels == 0].sum() > 0


def test_the_mass_is_the_share_of_the_maps_sum():
    mask = torch.zeros(1, 32, 32)
    mask[0, :16] = 1.0
    assert maps.mass_on(torch.ones(1, 32, 32), mask) == 0.5
    assert maps.mass_on(torch.zeros(1, 32, 32), mask) == 0.0


def test_a_map_of_a_painted_square_points_at_its_middle_and_an_empty_one_nowhere():
    square, middle = torch.zeros(1, 32, 32), torch.zeros(1, 32, 32)
    square[0, 8:20, 8:20] = middle[0, 13, 13] = 1.0
    assert maps.points_at(square, middle) == 1.0
    assert maps.points_at(torch.zeros(1, 32, 32), torch.ones(1, 32, 32)) == 0.0
    assert maps.chance(middle) == pytest.approx(25 / 32**2)
