"""The README's example of the package runs as it stands there."""

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
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
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
    assert not hooklab.leftover_hooks(names["model"])
    assert capsys.readouterr().out == "[]\n"
