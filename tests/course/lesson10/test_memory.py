"""What lesson 10 counts: bytes that are there, with and without checkpoints, and values in fewer bits."""

import itertools

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from hooklab.course.lesson10.bits import fewer_bits, restored, squeezed
from hooklab.course.lesson10.memory import ONE_LAYER, TORCHS, Meter, or_torchs, run, same_grads


def test_a_tensor_counts_until_the_last_reference_to_its_memory_is_gone():
    with Meter() as meter:
        x = torch.ones(100)
        view = x[:50]
        del x
        assert meter.alive == 400
        del view
        assert meter.alive == 0
    assert meter.peak == 400


def test_what_was_there_before_and_what_is_written_in_place_is_not_counted():
    x = torch.ones(100)
    with Meter() as meter:
        x.mul_(2)
        kept = x.view(10, 10)
    assert meter.alive == 0 and len(meter.operations) == 2 and kept is not None


def test_without_a_checkpoint_every_layers_output_is_kept():
    plain = run(1, None)
    assert plain.matmuls == 16
    assert plain.curve[plain.turn - 1] == pytest.approx(16 * ONE_LAYER, rel=0.01)


def checkpoint(function, x):
    """A right answer to 10.2."""
    second, numbers = {}, itertools.count()

    def unpack(number):
        if number not in second:
            second.clear()
            keep = saved_tensors_hooks(lambda t: second.setdefault(len(second), t.detach()), lambda value: value)
            with torch.enable_grad(), keep:
                function(x.detach().requires_grad_(x.requires_grad))
        return second.pop(number)

    with saved_tensors_hooks(lambda tensor: next(numbers), unpack):
        return function(x)


@pytest.mark.parametrize(("parts", "peak"), [(1, 17), (2, 10), (4, 8), (8, 10), (16, 17)])
def test_a_checkpoint_keeps_one_input_a_part_and_runs_each_layer_twice(parts, peak):
    plain, checked = run(1, None), run(parts, checkpoint)
    assert checked.matmuls == 32
    assert checked.curve[checked.turn - 1] == pytest.approx(parts * ONE_LAYER, rel=0.01)
    assert round(checked.peak / ONE_LAYER) == peak
    assert same_grads(checked.grads, plain.grads)


@pytest.mark.parametrize("one", [checkpoint, TORCHS])
def test_with_checkpoints_the_forward_needs_no_detach_for_the_results_that_tanh_keeps(one):
    plain, checked = run(1, None), run(4, one)
    assert (plain.turn, checked.turn) == (65, 49)


def test_the_readers_checkpoint_is_used_once_it_is_correct_and_torchs_before(capsys):
    mine = checkpoint
    assert or_torchs(mine) is mine
    assert capsys.readouterr().out == ""
    for not_yet in (lambda function, x: function(x), lambda function, x: None):
        assert run(4, or_torchs(not_yet)).matmuls == 32
        assert "exercise 10.2 is still open" in capsys.readouterr().out


@pytest.mark.parametrize("bits", [2, 4, 8, 16])
def test_squeezed_values_come_back_within_half_a_step(bits):
    values = torch.linspace(-3, 5, 997).reshape(-1, 1)
    packed = squeezed(values, bits)
    assert packed[0].nbytes == -(-997 * bits // 8)
    assert (restored(packed) - values).abs().max() <= (0.002 if bits == 16 else 0.51 * 8 / (2**bits - 1))
    assert restored(packed).shape == values.shape


def test_integers_equal_numbers_and_nothing_come_back_exactly():
    for values in (torch.arange(1000), torch.full((3,), 7.0), torch.zeros(0), torch.ones(2, dtype=torch.float64)):
        assert torch.equal(restored(squeezed(values, 2)), values)


def test_fewer_bits_cost_less_memory_and_more_error():
    costs = fewer_bits()
    assert [cost.bits for cost in costs] == [16, 8, 4, 2]
    assert [cost.share for cost in costs] == sorted((cost.share for cost in costs), reverse=True)
    assert [cost.error for cost in costs] == sorted(cost.error for cost in costs)
