"""The digits and the small network that lessons and explorers look into."""

from pathlib import Path

import pytest
import torch

from hooklab.course.digits import DigitsCNN, _loaded, _trained_weights, accuracy, digits, raw_digits, trained_digits_cnn


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """For layers this small a second thread costs more than it brings."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def data():
    return digits()


@pytest.fixture(scope="module")
def trained():
    return trained_digits_cnn(seed=1)


def test_the_digits_are_split_and_scaled_and_each_class_is_in_the_test_set(data):
    assert len(data.train_images) == len(data.train_labels) == 1437
    assert len(data.test_images) == len(data.test_labels) == 360
    assert data.train_images.dtype == torch.float32
    assert (data.train_images.min(), data.train_images.max()) == (0, 1)
    assert data.test_labels.unique().tolist() == list(range(10))


def test_the_digits_are_those_of_scikit_learn_which_is_asked_where_its_file_is_not_found(monkeypatch):
    images, labels = raw_digits()
    monkeypatch.setattr("hooklab.course.digits._file", lambda: Path("elsewhere"))
    theirs = _loaded.__wrapped__()
    assert (images.shape, images.sum()) == ((1797, 64), 561_718)
    for one, other in zip((images, labels), theirs, strict=True):
        assert torch.equal(one, other) and one.dtype == other.dtype


def test_who_changes_the_digits_changes_nobody_elses():
    for one in raw_digits():
        one.zero_()
    assert all(one.any() for one in raw_digits())


def test_the_trained_network_reads_nine_of_ten_test_digits_and_holds_nothing_of_its_training(trained, data):
    assert accuracy(trained, data.test_images, data.test_labels) > 0.9
    assert not trained.training
    assert all(parameter.grad is None for parameter in trained.parameters())
    assert not any(module._forward_hooks or module._backward_hooks for module in trained.modules())


def test_the_submodules_run_in_the_order_of_their_names():
    model, ran = DigitsCNN(), []
    for name, module in model.named_children():
        module.register_forward_hook(lambda module, args, output, name=name: ran.append((name, tuple(output.shape))))
    model(torch.zeros(3, 1, 8, 8))
    assert ran == [
        ("conv1", (3, 8, 8, 8)),
        ("relu1", (3, 8, 8, 8)),
        ("conv2", (3, 16, 8, 8)),
        ("relu2", (3, 16, 8, 8)),
        ("pool", (3, 16, 4, 4)),
        ("fc", (3, 10)),
    ]


def test_the_seed_alone_decides_which_network_is_trained_and_global_random_numbers_stay():
    before = torch.get_rng_state()
    first = trained_digits_cnn(seed=3, epochs=1)
    _trained_weights.cache_clear()
    second, other = (trained_digits_cnn(seed=seed, epochs=1) for seed in (3, 4))
    assert all(map(torch.equal, first.parameters(), second.parameters()))
    assert not torch.equal(first.fc.weight, other.fc.weight)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_is_done_to_a_network_leaves_the_next_as_it_was_trained():
    first = trained_digits_cnn(seed=1)
    with torch.no_grad():
        first.fc.weight.zero_()
    first.train()
    first.fc.register_forward_hook(lambda *_: None)
    second = trained_digits_cnn(seed=1)
    assert second.fc.weight.any()
    assert not second.training
    assert not second.fc._forward_hooks


def test_a_process_trains_a_network_once():
    trained_digits_cnn(seed=1)
    before = _trained_weights.cache_info()
    trained_digits_cnn(seed=1)
    assert _trained_weights.cache_info().misses == before.misses


@torch.no_grad()
def test_training_works_where_gradients_are_switched_off():
    _trained_weights.cache_clear()
    untrained, trained = trained_digits_cnn(epochs=0), trained_digits_cnn(epochs=1)
    assert not torch.equal(untrained.fc.weight, trained.fc.weight)


def test_accuracy_is_the_share_of_right_answers():
    scores = torch.eye(4)[[0, 1, 2, 2]]  # the model is the identity: a score of 1 for one class
    assert accuracy(torch.nn.Identity(), scores, torch.tensor([0, 1, 2, 3])) == 0.75
