"""ManifoldMixup in the loops that people have, under autocast, torch.compile, checkpointing and in two processes."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import hooklab
from hooklab.course.processes import launch
from hooklab.mixup import ManifoldMixup, Mixed
from tests.mixing import cnn, digits_like, mixed_by_hand, mixer, seeded

X, Y = digits_like()


@pytest.mark.parametrize("at", ["input", "0", "3"])
def test_under_autocast_logits_equal_mixup_by_hand_and_keep_bfloat16(at: str) -> None:
    model, by_hand = cnn(), cnn()
    with torch.autocast("cpu", dtype=torch.bfloat16), mixer(model, at)(X, Y) as mixed:
        logits = model(mixed.x)
        loss = mixed.loss(F.cross_entropy, logits)
        expected = mixed_by_hand(by_hand, X, mixed)
    loss.backward()
    assert logits.dtype == torch.bfloat16
    assert torch.equal(logits, expected)
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in model.parameters())


# torch.compile


@pytest.mark.parametrize("warm", [False, True], ids=["compiled in the block", "compiled before the block"])
@pytest.mark.parametrize("at", ["input", "0", "1"])
def test_a_compiled_model_is_mixed_like_the_plain_one(at: str, warm: bool) -> None:
    torch._dynamo.reset()
    model = cnn()
    fast = torch.compile(model, backend="eager")
    if warm:
        fast(X)
    mix = mixer(fast, at)
    for _ in range(2):
        with mix(X, Y) as mixed:
            logits = fast(mixed.x)
        assert torch.equal(logits, mixed_by_hand(model, X, mixed))


@pytest.mark.parametrize("whole", ["wrapped", "in place"])
def test_a_compiled_stage_of_a_compiled_model_is_mixed(whole: str) -> None:
    torch._dynamo.reset()
    model = cnn()
    model[0] = torch.compile(model[0], backend="eager")
    if whole == "wrapped":
        fast = torch.compile(model, backend="eager")
    else:
        fast = model
        model.compile(backend="eager")
    fast(X)
    with mixer(fast, "0")(X, Y) as mixed:
        logits = fast(mixed.x)
    assert torch.equal(logits, mixed_by_hand(cnn(), X, mixed))


# Activation checkpointing


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("at", ["0", "3"])  # at the last layer, computing again ends in the middle of the mixing
def test_a_checkpointed_layer_has_the_right_gradient_when_backward_is_inside_the_block(
    use_reentrant: bool, at: str
) -> None:
    model, by_hand = cnn(), cnn()
    with mixer(model, at)(X.clone(), Y) as mixed:
        logits = checkpoint(model, mixed.x.requires_grad_(), use_reentrant=use_reentrant)
        mixed.loss(F.cross_entropy, logits).backward()
    mixed.loss(F.cross_entropy, mixed_by_hand(by_hand, X, mixed)).backward()
    for ours, theirs in zip(model.parameters(), by_hand.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)


# Two processes


def one_rank() -> dict:
    """Return what three batches of different lengths on each rank drew, the averaged gradient, and two refusals."""
    import torch.nn.functional as F

    from tests.mixing import cnn, digits_like, seeded

    def refusal(mix: hooklab.ManifoldMixup) -> str:
        try:
            mix(x, y).__enter__()
        except RuntimeError as error:
            return str(error)
        return ""

    dist.init_process_group("gloo")
    rank, drawn = dist.get_rank(), []
    model = DistributedDataParallel(cnn())
    mix = hooklab.ManifoldMixup(model, ["module.0", "module.1"], generator=seeded(5))
    for step in range(3):
        model.zero_grad()
        x, y = digits_like(n=6 if step == 2 else 4 + 3 * rank, seed=10 * step + rank)
        with mix(x, y) as mixed:
            loss = mixed.loss(F.cross_entropy, model(mixed.x))
        loss.backward()
        drawn.append((mixed.layer, mixed.lam, mixed.permutation.tolist()))
    result = {
        "drawn": drawn,
        "gradients": [p.grad for p in model.parameters()],
        "refused": refusal(hooklab.ManifoldMixup(model, ["module.0"])),
        "disagreed": refusal(hooklab.ManifoldMixup(model, ["module.0"], generator=seeded(5 + rank))),
    }
    dist.destroy_process_group()
    return result


@pytest.fixture(scope="module")
def two_ranks() -> list[dict]:
    return launch(one_rank, seconds=120)


def test_two_ranks_agree_on_layer_and_lambda_but_each_has_its_own_permutation(two_ranks: list[dict]) -> None:
    first, second = ([(layer, lam) for layer, lam, _ in rank["drawn"]] for rank in two_ranks)
    assert first == second  # even with batches of different lengths
    assert len(set(first)) == 3
    (_, _, first), (_, _, second) = (rank["drawn"][2] for rank in two_ranks)
    assert sorted(first) == sorted(second) == list(range(6))
    assert first != second


def test_the_gradient_of_two_ranks_is_the_mean_of_their_mixed_losses(two_ranks: list[dict]) -> None:
    model = cnn()
    for rank, result in enumerate(two_ranks):
        layer, lam, permutation = result["drawn"][2]
        x, y = digits_like(n=6, seed=20 + rank)
        mixed = Mixed(x, y, lam, torch.tensor(permutation), layer)
        (mixed.loss(F.cross_entropy, mixed_by_hand(model, x, mixed)) / 2).backward()
    for result in two_ranks:
        for distributed, p in zip(result["gradients"], model.parameters(), strict=True):
            assert torch.allclose(distributed, p.grad, atol=1e-6)


def test_ranks_without_a_generator_or_with_different_ones_are_an_error_on_each(two_ranks: list[dict]) -> None:
    assert all("with the same seed" in rank["refused"] for rank in two_ranks)
    assert all("the ranks drew differently" in rank["disagreed"] for rank in two_ranks)


# The recipes of lesson 12


def batches(count: int = 4) -> list[tuple[Tensor, Tensor]]:
    """Easy ones: the class of an example is its brightest row."""
    made = []
    for seed in range(count):
        x, y = digits_like(n=8, seed=seed)
        y = y % 8
        x[range(8), 0, y] += 2.0
        made.append((x, y))
    return made


def accuracy(model: nn.Module) -> float:
    model.eval()
    with torch.no_grad():
        return float(torch.cat([model(x).argmax(dim=1) == y for x, y in batches()]).float().mean())


def test_with_gradient_accumulation_every_small_batch_is_mixed_on_its_own_and_the_gradients_add_up() -> None:
    model, by_hand = cnn(), cnn()
    mix = mixer(model, "1")
    for x, y in batches(2):
        with mix(x, y) as mixed:
            (mixed.loss(F.cross_entropy, model(mixed.x)) / 2).backward()
        (mixed.loss(F.cross_entropy, mixed_by_hand(by_hand, x, mixed)) / 2).backward()
    for ours, theirs in zip(model.parameters(), by_hand.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)


def test_under_autocast_and_a_scaler_the_step_is_taken() -> None:
    model, before = cnn(), cnn()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    with torch.autocast("cpu", dtype=torch.bfloat16), mixer(model, "1")(X, Y) as mixed:
        loss = mixed.loss(F.cross_entropy, model(mixed.x))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert loss.isfinite()
    assert not torch.equal(model[3].weight, before[3].weight)


# With packages that the course does not need, see requirements-recipes.txt: tested where they are installed.


@pytest.mark.long
def test_in_accelerate_the_prepared_model_is_mixed() -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = cnn()
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=0.02))
    mix = ManifoldMixup(model, ["1"], generator=seeded())
    for _ in range(40):
        for x, y in batches():
            with accelerator.accumulate(model), mix(x, y) as mixed:
                accelerator.backward(mixed.loss(F.cross_entropy, model(mixed.x)))
                optimizer.step()
                optimizer.zero_grad()
    assert accuracy(model) > 0.9


@pytest.mark.long
def test_in_lightning_the_training_step_is_mixed(tmp_path: object) -> None:
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = cnn()
            self.mix = ManifoldMixup(self.net, ["1"], generator=seeded())

        def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
            with self.mix(*batch) as mixed:
                return mixed.loss(F.cross_entropy, self.net(mixed.x))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=0.02)

    module, quiet = Module(), dict.fromkeys(["logger", "enable_checkpointing", "enable_progress_bar"], False)
    trainer = lightning.Trainer(max_epochs=40, accelerator="cpu", default_root_dir=str(tmp_path), **quiet)
    trainer.fit(module, torch.utils.data.DataLoader(batches(), batch_size=None))
    assert accuracy(module.net) > 0.9


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
