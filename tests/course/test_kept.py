"""What is trained in one run of the tests is trained once, and only where a folder is named."""

import pytest
import torch

from hooklab.course.kept import FOLDER, kept

trained = []


@kept
def train(seed: int, layers: tuple[str, ...] = ()) -> dict[str, torch.Tensor]:
    trained.append(seed)
    return {"weight": torch.full((2,), float(seed)), "loss": 0.5}


@pytest.fixture(autouse=True)
def _nothing_trained_yet() -> None:
    trained.clear()


def test_the_same_training_is_looked_up(monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    first, again = train(3, layers=("conv1",)), train(3, layers=("conv1",))
    assert trained == [3]
    assert torch.equal(first["weight"], again["weight"])
    assert again["loss"] == 0.5
    again["weight"].zero_()
    assert train(3, layers=("conv1",))["weight"].tolist() == [3, 3]
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("other", [((4,), {}), ((3, ("conv1",)), {}), ((3,), {"layers": ("conv2",)})])
def test_another_training_is_done(monkeypatch, tmp_path, other):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    train(3)
    args, kwargs = other
    assert train(*args, **kwargs)["weight"].tolist() == [args[0]] * 2
    assert len(trained) == 2


def test_a_training_that_fails_leaves_nothing(monkeypatch, tmp_path):
    @kept
    def fails() -> None:
        raise ValueError("no data")

    monkeypatch.setenv(FOLDER, str(tmp_path))
    for _ in range(2):
        with pytest.raises(ValueError, match="no data"):
            fails()
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_nothing_is_kept(monkeypatch, tmp_path):
    monkeypatch.delenv(FOLDER, raising=False)
    monkeypatch.chdir(tmp_path)
    train(3), train(3)
    assert trained == [3, 3]
    assert list(tmp_path.iterdir()) == []
