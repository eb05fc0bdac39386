"""The README's example of the package runs as it stands there."""

import copy
import re
from pathlib import Path

import torch
from torch import nn

import hooklab

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1, self.layer2, self.layer3 = (nn.Linear(2, 2) for _ in range(3))
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.layer3(self.relu(self.layer2(self.relu(self.layer1(x)))))


def test_the_example_of_the_package_runs(capsys):
    example, recipes, dry_run = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    model, x = Model(), torch.ones(1, 2)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)

    def train():
        model(x).sum().backward()
        sgd.step()

    names = {"model": model, "x": x, "optimizer": sgd, "train": train}
    exec(example, names)
    seen = names["seen"]
    assert seen["layer1"].shape == seen.grad("layer1").shape == (1, 2)
    assert len(seen.calls("relu")) == 2
    assert {row.kind for row in names["health"].rows} == {"output", "gradient", "update"}
    assert names["features"].shape == (1, 2)
    assert capsys.readouterr().out == "[]\n"
    names |= {"torch": torch, "copy": copy, "batches": [x, 2 * x, 3 * x]}
    exec(recipes, names)
    assert names["gradient"].shape == (1, 2) and names["features"].shape == (3, 2)
    exec(dry_run, names)
    assert "relu#1" in capsys.readouterr().out
    assert not hooklab.leftover_hooks(names["model"])


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.attention, self.relu = nn.Linear(4, 4), nn.MultiheadAttention(4, 2), nn.ReLU(inplace=True)
        self.encoder, self.unused = nn.Sequential(nn.Linear(4, 4)), nn.Linear(4, 4)

    def forward(self, x):
        x = self.relu(self.fc(x))
        x, _ = self.attention(x, x, x)
        return self.relu(self.encoder.forward(x))


def test_a_run_on_the_meta_device_shows_what_stands_in_the_way():
    model = Odd()
    dry_run = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[2]
    names = {"torch": torch, "copy": copy, "hooklab": hooklab, "model": model, "x": torch.ones(3, 4)}
    exec(dry_run.replace("print(seen)", ""), names)
    seen = names["seen"]
    assert seen.silent == ["attention.out_proj", "encoder", "unused"]
    assert "relu#0" in seen and "relu#1" in seen
    assert re.search(r"  fc +\(3, 4\) float32 \(changed in place\)", repr(seen))
    assert not any(parameter.is_meta for parameter in model.parameters())
