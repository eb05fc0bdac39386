"""The start page: its links lead to cells that exist, its index to the cell that answers, its map shows what runs."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from hooklab.course.build.draft import Draft, draft
from hooklab.course.build.sources import Course
from hooklab.course.lesson00.figures import HOOKS, hook_map, order_of_hooks
from hooklab.course.lesson00.symptoms import SYMPTOMS, Tagged, index

ROOT = Path(__file__).parents[3]
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)")


@functools.cache
def drafts() -> dict[str, Draft]:
    """What the build makes of each lesson's source, by the notebook's name."""
    course = Course(ROOT)
    return {f"{lesson.name}.ipynb": draft(course, lesson) for lesson in course.lessons()}


def markdown(name: str) -> str:
    return "\n".join(cell.text for cell in drafts()[name].cells if cell.kind == "markdown")


def anchors(name: str) -> set[str]:
    """Where a link into a notebook can lead in JupyterLab: a cell, or a heading whose anchor needs no escape."""
    headings = re.findall(r"^#{1,6} ([\w -]+?)\s*$", markdown(name), re.M)
    return {f"cell-id={id}" for id in drafts()[name].ids} | {heading.replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", drafts())
def test_every_link_between_lessons_leads_to_a_cell(name: str) -> None:
    for file, place in LINK.findall(markdown(name)):
        assert not place or place in anchors(file or name), f"{file}#{place}"
        assert not file or file in drafts() or (ROOT / "lessons" / file).is_file(), file


@pytest.mark.parametrize("page", ["README.md", ".github/CONTRIBUTING.md"])
def test_every_link_of_the_readme_leads_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    headings = {re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in re.findall(r"^#+ (.+)$", text, re.M)}
    for file, place in LINK.findall(text):
        assert not file or (ROOT / page).parent.joinpath(file).exists(), file
        assert not place or place in (anchors(Path(file).name) if file else headings), f"{file}#{place}"


def test_the_route_leads_to_every_lesson_in_its_order() -> None:
    start, *names = drafts()
    (route,) = (cell.text for cell in drafts()[start].cells if cell.text.startswith("## The route"))
    assert re.findall(r"^\| \d+ \| \[.+?\]\((.+?)\)", route, re.M) == names


# --- somebody is stuck, and searches the page

SEARCHES = {  # what is typed, and a piece of the cell that answers
    "forward hook not called": "A module's `__call__` runs the hooks",
    "not working": "A module's `__call__` runs the hooks",
    "retain_grad": "y.retain_grad()",
    "called twice": "def runs(remove=False",
    "gradient checkpointing": "def runs(remove=False",
    "communication hook": "def with_a_comm_hook",
    "extract features": "layer1=nn.Conv2d(3, 4, 3)",
    "takes 3 positional arguments but 4 were given": "def at_most_two",
    "BackwardHookFunctionBackward": "def hook_the_output",
    "non-full backward hook": "fresh.load_state_dict(layer.state_dict())",
    "incorrect number of values": "def only_the_first",
    "hook doesn't fire": "A module's `__call__` runs the hooks",
    "never called": "A module's `__call__` runs the hooks",
    "grad_input is None": "data, seen = torch.ones(1, 2), []",
    "features detached": 'features["detached"], features["live"]',
    "memory leak": "bytes_alive(deep, form)",
    "out of memory": "bytes_alive(deep, form)",
    "memory grows": "bytes_alive(deep, form)",
    "called multiple times": "class Twice(nn.Module)",
    "remove all hooks": "layer._forward_hooks.clear()",
    "hook runs in validation": "def noise_in_training",
    "clip gradient": "grad.clamp(-0.01, 0.01)",
    "training slow": "Python waits until the device",
    "ONNX": "torch.fx.symbolic_trace(model)",
    "compiled model": "the hook **before** the first compiled call",
    "DDP": "How does DDP know when to average?",
    "output of an intermediate layer": 'capture(cnn, "conv*", nn.ReLU)',
    "LSTM": "nn.LSTM(input_size=2",
    "HuggingFace": "nn.LSTM(input_size=2",
    "modify a layer's output": "def forgetful",
    "kwargs": "def at_most_two",
    "autocast": "torch.amp.GradScaler",
    "cuda": "requires_grad=True).double()",
    "slice": "bytes_alive(deep, form)",
    "retain_graph": "def second_backward",
    "attention weights": "def ask_for_weights",
    "exploding gradients": "def statistics(training)",
    "asyncio": "by_thread.setdefault",
    "LoRA": "class Lora",
    "running_mean": "class Attention(nn.Module)",
    "masked softmax": "class Attention(nn.Module)",
    "clip_grad_norm_": "def clipped(",
    "fused optimizer": "def two_steps(**kind)",
    "same dtype": "def to_its_dtype",
    "EMA": "def calls_of_the_hooks",
    "prune": "class Experts",
    "DDP does not average": "def averaged_or_not",
    "output_hidden_states": "def capture_outputs",
    "w.T": "w.T.register_hook",
    "logits": "class AppendDouble",
    "_orig_mod": "def without_wrappers",
    "autoreload": "def run_the_cell",
    "register_buffer": "def state_after_hook",
    "del model": "def deleted(change)",
    "hook '<lambda>' has changed the size of value": "outcomes = {",
    "attention mask": "by_mask = kept[0]",
    "ViT": "class MixesTokens",
    "first example": "def old_recipe",
    "sanity check": "the trainer's own call",
    "wrong for the others": "def kept_from_the_first",
    "ignore_index": "def known_only",
    "two views": "class Halves",
}


def answers(typed: str) -> list[str]:
    """The cells behind the first three entries of the index in which a search finds what is typed."""
    cells = {
        f"{name}#cell-id={id}": cell.text
        for name, made in drafts().items()
        for cell, id in zip(made.cells, made.ids, strict=True)
    }
    entries = [line.split(" → ") for line in markdown("00_start_here.ipynb").split("\n") if " → [" in line]
    found = [links for words, links in entries if typed.lower() in words.replace("`", "").lower()]
    return [cells[f"{file}#{place}"] for links in found[:3] for file, place in LINK.findall(links)]


@pytest.mark.parametrize("typed", SEARCHES)
def test_a_search_for_the_words_of_somebody_who_is_stuck_leads_to_the_answer(typed: str) -> None:
    assert any(SEARCHES[typed] in cell for cell in answers(typed))


ONES, LEAF = torch.ones(1), torch.ones(1, requires_grad=True)


@pytest.mark.parametrize(
    ("raises", "answer"),
    [
        (lambda: ONES.register_hook(print), "output.register_hook, print"),
        (lambda: ONES.retain_grad(), "output.register_hook, print"),
        (lambda: ONES.backward(), 'features["detached"], features["live"]'),
        (lambda: [loss.backward() for loss in [(LEAF**2).sum()] * 2], "def second_backward"),
        (lambda: LEAF.add_(1), "x.sub_(lr * x.grad)"),
        (lambda: LEAF.numpy(), "error_of(output.numpy)"),
        (lambda: ONES.bfloat16().numpy(), "error_of(output.numpy)"),
        (lambda: copy.deepcopy(LEAF * 2), "def after_a_pass(keep)"),
        (lambda: nn.Linear(1, 1).load_state_dict({}), "def before_load("),
    ],
)
def test_a_search_for_an_error_as_torch_prints_it_leads_to_the_answer(raises: Callable[[], None], answer: str) -> None:
    with pytest.raises((RuntimeError, TypeError)) as error:
        raises()
    assert any(answer in cell for cell in answers(str(error.value)[:30]))


def cells() -> list[Tagged]:
    """A cell for each symptom, as if one lesson had them all."""
    return [Tagged(key, "03_forward_hooks", "Return", "b4") for group in SYMPTOMS.values() for key in group]


def test_a_symptom_that_two_lessons_answer_is_listed_once_with_a_link_to_each() -> None:
    text = index([*cells(), Tagged("24", "07_manifold_mixup", "The hook", "a1"), cells()[0]])
    (line,) = [line for line in text.split("\n") if "the network's result stays the same" in line]
    assert line.split(" → ")[1] == (
        "[lesson 3, Return](03_forward_hooks.ipynb#cell-id=b4), "
        "[lesson 7, The hook](07_manifold_mixup.ipynb#cell-id=a1)"
    )
    assert all(text.count(f"### {heading}\n") == 1 for heading in SYMPTOMS)


def test_a_cell_without_words_and_words_without_a_cell_are_refused_by_name() -> None:
    with pytest.raises(LookupError, match="field-99 has no words"):
        index([*cells(), Tagged("99", "03_forward_hooks", "Return", "b4")])
    with pytest.raises(LookupError, match=r"no cell answers these symptoms: field-02$"):
        index(cell for cell in cells() if cell.key != "02")


# --- the map


def test_every_hook_of_the_map_runs_once_and_none_is_left() -> None:
    first, second = order_of_hooks(), order_of_hooks()
    assert first == second  # a global hook left behind would be called again
    assert sorted(what for what, _ in first) == sorted(HOOKS)


def test_the_map_names_every_hook() -> None:
    figure = hook_map([what for what, _ in order_of_hooks()])
    texts = " ".join(text.get_text().replace("\n", " ") for text in figure.axes[0].texts)
    assert all(what in texts for what in HOOKS)
