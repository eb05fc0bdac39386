"""The index of symptoms on the start page: what people say when a hook surprises them, and the cell that answers.

A cell that answers a field case carries its tag (`field-27`). `SYMPTOMS` has the words for each case; where the answer
stands is read from the lessons' sources, so a lesson that moves takes its entry with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import quote


class Symptom(NamedTuple):
    """A heading of the index, and what people say."""

    about: str
    words: str


HEADINGS = GRADIENTS, TENSOR, FORWARD, BACKWARD, MODEL, MIXING = (
    "No gradient, or an error in its place",
    "A tensor's hook surprises me",
    "I want a layer's output",
    "Backward hooks of modules",
    "The model, copies, trainers",
    "Mixing and training",
)

SYMPTOMS: dict[str, Symptom] = {
    "01": Symptom(GRADIENTS, "`y.grad` is None after `backward()`, with a warning about a non-leaf tensor"),
    "02": Symptom(GRADIENTS, "I set `requires_grad=True`, reshaped or moved the tensor, and its `.grad` stays None"),
    "151": Symptom(GRADIENTS, "my parameter's `.grad` is None"),
    "170": Symptom(GRADIENTS, "the loss is fine, and a gradient is NaN: `torch.where` with a root or a logarithm"),
    "190": Symptom(GRADIENTS, "the loss is nan: which layer made the first one?"),
    "191": Symptom(GRADIENTS, "Function 'SqrtBackward0' returned nan values in its 0th output (`detect_anomaly`)"),
    "193": Symptom(GRADIENTS, "gradients vanish or explode: how large are they at each layer?"),
    "194": Symptom(GRADIENTS, "one layer does not learn: frozen, detached, never called, or not in the optimizer"),
    "145": Symptom(GRADIENTS, "element 0 of tensors does not require grad and does not have a grad_fn"),
    "141": Symptom(GRADIENTS, "trying to backward through the graph a second time"),
    "142": Symptom(GRADIENTS, "a leaf Variable that requires grad is being used in an in-place operation"),
    "143": Symptom(
        GRADIENTS, "one of the variables needed for gradient computation has been modified by an inplace operation"
    ),
    "144": Symptom(GRADIENTS, "I ran `backward()` once more, and `x.grad` has doubled"),
    "03": Symptom(TENSOR, "cannot register a hook on a tensor that doesn't require gradient"),
    "149": Symptom(TENSOR, "can't retain_grad on Tensor that has requires_grad=False"),
    "04": Symptom(GRADIENTS, "Grad-CAM: my list of gradients is empty, or the output does not require grad"),
    "05": Symptom(TENSOR, "I edit `grad` in place: another tensor's gradient changes as well, or an error comes"),
    "06": Symptom(TENSOR, "my hook returns a number, a list or another shape, and backward raises"),
    "07": Symptom(TENSOR, "several hooks on one tensor: which runs first, and what does `retain_grad()` see?"),
    "08": Symptom(TENSOR, "I hooked a tensor and then changed it in place: which version does the hook watch?"),
    "09": Symptom(TENSOR, "does `torch.autograd.grad(out, x)` run the hook on `x`?"),
    "10": Symptom(TENSOR, "a weight is used in several places: how often does its hook run, with which gradient?"),
    "11": Symptom(TENSOR, "my hook makes a gradient 1000 times larger, and the optimizer's step does not change"),
    "148": Symptom(TENSOR, "my hook makes the gradient zero, and the weight still moves"),
    "13": Symptom(TENSOR, "Python crashes in `register_hook` on a view whose base was changed"),
    "15": Symptom(TENSOR, "a post-accumulate hook gets the parameter, and I expected the gradient"),
    "17": Symptom(TENSOR, "inside a hook, `param.grad` is None or that of the step before"),
    "19": Symptom(MODEL, "a hook stops firing after its parameter or its layer was replaced"),
    "20": Symptom(TENSOR, "`register_multi_grad_hook` gives None for some tensors, or never fires"),
    "160": Symptom(
        TENSOR, "a hook on the node of a leaf (AccumulateGrad) is never called, or not after the first step"
    ),
    "172": Symptom(TENSOR, "expected tuple, but hook returned 'Tensor': what does a hook on a node return?"),
    "165": Symptom(TENSOR, "the optimizer steps in a post-accumulate hook: accumulation and clipping go wrong"),
    "21": Symptom(FORWARD, "my forward hook never fires: the code calls `module.forward(x)`"),
    "22": Symptom(FORWARD, "`F.relu` or an operator: there is no module to put a hook on"),
    "23": Symptom(FORWARD, "one ReLU is used several times: I see its last call only, or the calls in a strange order"),
    "24": Symptom(FORWARD, "my forward hook computes a new output, and the network's result stays the same"),
    "150": Symptom(
        FORWARD, "how do I get at a layer by its name? 'tuple' object has no attribute 'register_forward_hook'"
    ),
    "146": Symptom(FORWARD, "is a layer's output taken before or after the activation?"),
    "147": Symptom(FORWARD, "my hook runs twice in one pass"),
    "26": Symptom(FORWARD, "'tuple' object has no attribute 'detach' (or 'shape')"),
    "27": Symptom(FORWARD, "the output that I captured is already rectified: a later layer wrote over it"),
    "28": Symptom(FORWARD, "memory grows with each batch since I store activations"),
    "30": Symptom(FORWARD, "takes 2 positional arguments but 3 were given: how many arguments does a hook get?"),
    "31": Symptom(TENSOR, "a hook gets no name: how do I tell which tensor it is? In a loop all report the last one"),
    "32": Symptom(FORWARD, "a hook on a ModuleList, or on a layer that the forward does not use, never fires"),
    "34": Symptom(MODEL, "after a run that failed, old hooks are still on the model"),
    "35": Symptom(MODEL, "a timer of pre-hook and hook gets out of step when a forward raises"),
    "36": Symptom(MODEL, "several hooks on one module, `prepend=True`, global hooks: which runs first?"),
    "37": Symptom(MODEL, "after `copy.deepcopy` the copy writes into the original's store"),
    "38": Symptom(MODEL, "deepcopy: only tensors created explicitly by the user support the deepcopy protocol"),
    "171": Symptom(MODEL, "my saved model is far too large"),
    "39": Symptom(MODEL, "`torch.save(model)`: can't pickle a local object, since a hook is registered"),
    "41": Symptom(FORWARD, "can't call numpy() on a tensor that requires grad; unsupported ScalarType BFloat16"),
    "43": Symptom(MODEL, "what becomes of an exception that a hook raises?"),
    "44": Symptom(BACKWARD, "output 0 of BackwardHookFunction is a view and is being modified inplace"),
    "45": Symptom(BACKWARD, "at the first layer `grad_input` is `(None,)`, and a warning comes"),
    "46": Symptom(BACKWARD, "`register_backward_hook` gives three gradients, in an order that nobody expects"),
    "48": Symptom(
        BACKWARD,
        "module output should be a Tensor or a tuple of Tensors: a dict or `ModelOutput`, and no backward hook fires",
    ),
    "50": Symptom(BACKWARD, "memory grows with a full backward hook and `create_graph=True`"),
    "51": Symptom(FORWARD, "hooks inside `nn.TransformerEncoderLayer` do not fire in eval mode"),
    "52": Symptom(FORWARD, "a hook on `MultiheadAttention.out_proj` never fires; the attention weights are None"),
    "196": Symptom(FORWARD, "`scaled_dot_product_attention` gives no weights, and there is no module to hook"),
    "54": Symptom(GRADIENTS, "None of the inputs have requires_grad=True: a frozen embedding under checkpointing"),
    "55": Symptom(TENSOR, "saved_tensors_hooks: an error when pack edits what it was given"),
    "166": Symptom(TENSOR, "saved_tensors_hooks: memory stays for ever; how does pack leave parameters alone?"),
    "167": Symptom(
        MODEL, "checkpoint: a different number of tensors was saved during the original forward and recomputation"
    ),
    "56": Symptom(TENSOR, "saved_tensors_hooks set in one thread are not active in another"),
    "162": Symptom(MODEL, "missing and unexpected keys in state_dict: a layer has another name in old checkpoints"),
    "57": Symptom(MODEL, "hooks registered after the first `torch.compile` run are ignored"),
    "169": Symptom(MODEL, "a hook breaks the compiler's graph: Unsupported, with `fullgraph=True`"),
    "161": Symptom(MODEL, "under `vmap`, `grad` or `functional_call` hooks raise, see one example, or do not run"),
    "59": Symptom(MODEL, "TorchScript refuses my hook"),
    "61": Symptom(MODEL, "`nn.DataParallel`: what my hook sets on the module is gone afterwards"),
    "164": Symptom(MODEL, "DDP: my hook sees the gradient of its own process, not the average"),
    "163": Symptom(MODEL, "`register_comm_hook`: KeyError: 'bucket', unable to cast, or can only be called once"),
    "168": Symptom(MODEL, "several processes: one waits for ever, or: connection closed by peer"),
    "63": Symptom(MODEL, "FSDP: `param.register_hook` never fires"),
    "64": Symptom(MODEL, "optimizer step hooks: lost in a copy, or too early with a closure"),
    "66": Symptom(MODEL, "weight_norm, spectral_norm, parametrize: the weight that I hook or read is not the one used"),
    "67": Symptom(MODEL, "`fuse_modules` loses or doubles my hooks"),
    "101": Symptom(
        MODEL, "my trainer calls `training_step`, a wrapper calls `generate`: the model itself is never called"
    ),
    "102": Symptom(FORWARD, "steering in a `generate` loop: the later steps see a single token"),
    "103": Symptom(FORWARD, "hidden states of generated tokens: the last step overwrites the others"),
    "106": Symptom(FORWARD, "two extractors on one model: closing one must not blind the other"),
    "108": Symptom(FORWARD, "I zip the captured values with my list of names, and they do not fit"),
    "111": Symptom(GRADIENTS, "second-order maps: every iteration's graph stays in memory"),
    "113": Symptom(FORWARD, "I only looked at the shapes, and the accuracy is worse than before"),
    "115": Symptom(FORWARD, "a layer with weight_norm is missing from the list of layers"),
    "116": Symptom(FORWARD, "`Sequential(*model.children())` gives other results than the model"),
    "192": Symptom(MIXING, "dead ReLUs: how many units never fire, and since which step?"),
    "195": Symptom(MIXING, "inf in half precision, and in single precision all is well"),
    "120": Symptom(MIXING, "mixing labels equals mixing losses: with class weights as well?"),
    "121": Symptom(MIXING, "mixed targets for segmentation or tokens: labels of shape (n, H, W)"),
    "123": Symptom(BACKWARD, "a rule for ReLU's backward, where one ReLU is used twice"),
    "127": Symptom(FORWARD, "the last layer's output is not `hidden_states[-1]`"),
    "129": Symptom(MODEL, "I ran the cell twice, and the layer is wrapped twice"),
    "132": Symptom(FORWARD, "I stop the forward half-way, and offloaded layers stay loaded"),
    "136": Symptom(MIXING, "two tasks: the targets are a dict or a pair"),
    "137": Symptom(MIXING, "the batch is in the second dimension, and time steps get mixed"),
    "138": Symptom(GRADIENTS, "under a GradScaler, my hook sees gradients a thousand times too large"),
    "140": Symptom(MODEL, "I wrapped a layer (LoRA) after making the tool: it looks at the inner one"),
    "180": Symptom(BACKWARD, "I differentiate from an output that a forward hook kept: the backward hook stays silent"),
    "181": Symptom(BACKWARD, "I register a backward hook right before `backward()`, and it never runs"),
    "182": Symptom(BACKWARD, "`grad_input` has a zero where the true derivative is not zero"),
    "183": Symptom(BACKWARD, "a backward hook that does nothing, and `forward` gets another tensor than I passed"),
    "184": Symptom(
        FORWARD, "my pre-hook changes the input in place: each call with the same tensor gives another result"
    ),
    "185": Symptom(MIXING, "with mixup my training accuracy is low, lower than on validation"),
    "186": Symptom(FORWARD, "my hook does not see keyword arguments: its `args` is empty, or lacks the mask"),
}


class Tagged(NamedTuple):
    """A cell with a tag such as `field-24`: what follows the dash, its lesson, the heading it is under, its text."""

    key: str
    lesson: str
    heading: str
    text: str = ""


def index(cells: Iterable[Tagged]) -> str:
    """Return the index as Markdown: for each heading a list of symptoms, each with a link to its answers.

    Args:
        cells: those that answer a case, in the order of the lessons.

    Raises:
        LookupError: for a case without words in SYMPTOMS.

    Example:
        >>> print(index([Tagged("01", "01_intermediate_grad", "In the field")]))
        **No gradient, or an error in its place**
        <BLANKLINE>
        - `y.grad` is None after `backward()`, with a warning about a non-leaf tensor → [lesson 1, In the field](01_intermediate_grad.ipynb#In-the-field)
    """  # noqa: E501
    links: dict[str, list[str]] = {}
    for cell in cells:
        if cell.key not in SYMPTOMS:
            raise LookupError(f"field-{cell.key} has no words: add it to hooklab/course/lesson00/symptoms.py")
        links.setdefault(cell.key, []).append(link(cell))
    parts = []
    for about in HEADINGS:
        lines = [
            f"- {symptom.words} → {', '.join(dict.fromkeys(links[case]))}"
            for case, symptom in SYMPTOMS.items()
            if symptom.about == about and case in links
        ]
        if lines:
            parts.append("\n".join([f"**{about}**", "", *lines]))
    return "\n\n".join(parts)


def link(cell: Tagged) -> str:
    """Return a link to the heading that a cell is under, as Markdown."""
    number = int(cell.lesson.split("_", 1)[0])
    return f"[lesson {number}, {cell.heading}]({cell.lesson}.ipynb#{quote(anchor(cell.heading))})"


def anchor(heading: str) -> str:
    """Return the id that JupyterLab and nbconvert give a heading."""
    return re.sub(r"[`*]", "", heading).replace(" ", "-")
