"""ManifoldMixup in the loops that people have: each recipe trains, and mixes what it should.

That of DistributedDataParallel is in test_mixup_systems.py, beside what goes wrong there.
"""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hooklab.mixup import ManifoldMixup
from tests.mixing import seeded


def model_and_batches(count: int = 4) -> tuple[nn.Sequential, list[tuple[Tensor, Tensor]]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    generator = seeded(1)
    batches = []
    for _ in range(count):
        y = torch.randint(3, (8,), generator=generator)
        batches.append((F.one_hot(y, 4).float() + 0.1 * torch.rand(8, 4, generator=generator), y))
    return model, batches


def accuracy(model: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> float:
    with torch.no_grad():
        return float(torch.cat([model(x).argmax(dim=1) == y for x, y in batches]).float().mean())


def test_a_plain_loop_learns() -> None:
    model, batches = model_and_batches()
    mix = ManifoldMixup(model, ["1"], generator=seeded())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(15):
        for x, y in batches:
            with mix(x, y) as mixed:
                loss = mixed.loss(F.cross_entropy, model(mixed.x))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert accuracy(model, batches) == 1.0


def test_with_gradient_accumulation_every_small_batch_is_mixed_on_its_own_and_the_gradients_add_up() -> None:
    model, batches = model_and_batches(2)
    mix = ManifoldMixup(model, ["1"], include_input=False, generator=seeded())
    expected = [torch.zeros_like(p) for p in model.parameters()]
    for x, y in batches:
        with mix(x, y) as mixed:
            loss = mixed.loss(F.cross_entropy, model(mixed.x)) / len(batches)
        loss.backward()
        hidden = model[:2](x)
        logits = model[2](mixed.lam * hidden + (1 - mixed.lam) * hidden[mixed.permutation])
        by_hand = mixed.loss(F.cross_entropy, logits) / len(batches)
        for total, one in zip(expected, torch.autograd.grad(by_hand, list(model.parameters())), strict=True):
            total += one
    for parameter, total in zip(model.parameters(), expected, strict=True):
        assert torch.allclose(parameter.grad, total, atol=1e-6)


def test_under_autocast_and_a_scaler_the_step_is_taken() -> None:
    model, batches = model_and_batches(1)
    mix = ManifoldMixup(model, ["1"], generator=seeded())
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    before, ((x, y),) = copy.deepcopy(model), batches
    with torch.autocast("cpu", dtype=torch.bfloat16), mix(x, y) as mixed:
        loss = mixed.loss(F.cross_entropy, model(mixed.x))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert loss.isfinite()
    assert not torch.equal(model[0].weight, before[0].weight)


# Packages that a course does not need, see requirements-recipes.txt: tried where they are installed.


@pytest.mark.long
def test_in_accelerate_the_prepared_model_is_mixed() -> None:
    accelerate = pytest.importorskip("accelerate")
    model, batches = model_and_batches()
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=0.02))
    mix = ManifoldMixup(model, ["1"], generator=seeded())
    for _ in range(40):
        for x, y in batches:
            with accelerator.accumulate(model), mix(x, y) as mixed:
                accelerator.backward(mixed.loss(F.cross_entropy, model(mixed.x)))
                optimizer.step()
                optimizer.zero_grad()
    assert accuracy(model, batches) == 1.0


@pytest.mark.long
def test_in_lightning_the_training_step_is_mixed_and_validation_is_not(tmp_path: object) -> None:
    lightning = pytest.importorskip("lightning")
    model, batches = model_and_batches()

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.validated = model, 0
            self.mix = ManifoldMixup(model, ["1"], generator=seeded())

        def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
            with self.mix(*batch) as mixed:
                return mixed.loss(F.cross_entropy, self.net(mixed.x))

        def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
            assert torch.equal(self.net(batch[0]), copy.deepcopy(self.net)(batch[0]))
            self.validated += 1

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=0.02)

    module = Module()
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = lightning.Trainer(max_epochs=15, accelerator="cpu", default_root_dir=str(tmp_path), **quiet)
    loader = torch.utils.data.DataLoader(batches, batch_size=None)
    trainer.fit(module, loader, loader)
    assert accuracy(model, batches) == 1.0 and module.validated > 0


@pytest.mark.long
def test_in_a_transformers_trainer_the_loss_is_mixed_with_the_union_of_masks(tmp_path: object) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, num_labels=2
    )
    model = transformers.BertForSequenceClassification(config)
    mix = ManifoldMixup(model, ["bert.encoder.layer.0"], include_input=False, generator=seeded())
    seen = []

    class MixupTrainer(transformers.Trainer):
        def compute_loss(
            self, model: nn.Module, inputs: dict[str, Tensor], return_outputs: bool = False, **kwargs: object
        ) -> object:
            labels = inputs.pop("labels")
            if not model.training:
                outputs = model(**inputs)
                loss = F.cross_entropy(outputs.logits, labels)
            else:
                with mix(inputs["input_ids"], labels) as mixed:
                    mask = mixed.union(inputs["attention_mask"])
                    outputs = model(**{**inputs, "attention_mask": mask})
                loss = mixed.loss(F.cross_entropy, outputs.logits)
                seen.append(mixed.layer)
            return (loss, outputs) if return_outputs else loss

    examples = [
        {"input_ids": [2, 5, 6, 0], "attention_mask": [1, 1, 1, 0], "labels": 0},
        {"input_ids": [2, 7, 8, 9], "attention_mask": [1, 1, 1, 1], "labels": 1},
    ] * 4
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=3,
        per_device_train_batch_size=4,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
    )
    MixupTrainer(model=model, args=arguments, train_dataset=examples, eval_dataset=examples).train()
    assert seen == ["bert.encoder.layer.0"] * 3
