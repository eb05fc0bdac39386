"""What people get wrong in lesson 3: one small program for each misconception."""

import contextlib
import functools
from contextlib import contextmanager

import torch

# --- 3.1


def seeing(
    keep=lambda args, output: output.detach(),
    change=lambda output: None,
    run=lambda model, x: model(x),
    finish=lambda found, result: found[0],
    which=lambda model, layer: layer,
    remove=True,
):
    """A hook around one run of the model, with parts that can be exchanged."""

    def answer(model, layer, x):
        found = []

        def hook(module, args, output):
            found.append(keep(args, output))
            return change(output)

        handle = which(model, layer).register_forward_hook(hook)
        result = run(model, x)
        if remove:
            handle.remove()
        return finish(found, result)

    return answer


def stopping(model, layer, x):
    def stop(output):
        raise StopIteration

    def run(model, x):
        with contextlib.suppress(StopIteration):
            model(x)

    return seeing(change=stop, run=run)(model, layer, x)


def in_evaluation_mode(model, x):
    modes = [(module, module.training) for module in model.modules()]
    model.train(not model.training)(x)
    for module, mode in modes:
        module.training = mode


def silently(model, x):
    with contextlib.suppress(Exception):
        model(x)


def twice(model, x):
    model(x)
    return model(x)


def nothing(*_):
    return None


# --- 3.2


def switching(change, finish=lambda handle: handle):
    """A hook that returns change(output, channel)."""

    def answer(layer, channel):
        return finish(layer.register_forward_hook(lambda module, args, output: change(output, channel)))

    return answer


def off(output, channel):
    changed = output.clone()
    changed[:, channel] = 0
    return changed


def off_at(*before):
    """Write zeros where these indices, and then the channel, lead to."""

    def change(output, channel):
        changed = output.clone()
        changed[(*before, channel)] = 0
        return changed

    return change


def off_in_place(output, channel):
    with torch.no_grad():
        output[:, channel] = 0


def mask(output, channel, dtype=None):
    keep = torch.ones(output.shape[1], dtype=dtype or output.dtype)
    keep[channel] = 0
    return keep[:, None, None]


def scaled_up(output, channel):
    count = output.shape[1]
    return off(output, channel) * count / (count - 1)


def one_only(output, channel):
    return output * (1 - mask(output, channel))


def a_channel_less(output, channel):
    return torch.cat([output[:, :channel], output[:, channel + 1 :]], dim=1)


def a_new_leaf(output, channel):
    return off(output.detach(), channel).requires_grad_()


def half_detached(output, channel):
    return mask(output, channel) * (output + output.detach()) / 2


def in_mode(training):
    def answer(layer, channel):
        return layer.register_forward_hook(
            lambda module, args, output: off(output, channel) if module.training == training else output
        )

    return answer


def zeroes_the_weights(layer, channel):
    with torch.no_grad():
        layer.weight[channel] = 0
        layer.bias[channel] = 0
    return layer.register_forward_hook(nothing)


def removes_at_once(layer, channel):
    with switching(off)(layer, channel) as handle:
        return handle


def for_one_pass(layer, channel):
    def hook(module, args, output):
        handle.remove()
        return off(output, channel)

    handle = layer.register_forward_hook(hook)
    return handle


def remembers_the_first(layer, channel):
    kept = {}
    return layer.register_forward_hook(lambda module, args, output: kept.setdefault("it", off(output, channel)))


def another_kind(layer, channel):
    return layer.register_full_backward_hook(lambda module, grad_input, grad_output: None)


def forward_again(layer, channel):
    return layer.register_forward_hook(lambda module, args, output: off(module.forward(*args), channel))


def two_hooks(layer, channel):
    switching(off)(layer, channel)
    return switching(off)(layer, channel)


def with_a_shared_channel():
    shared = {}

    def answer(layer, channel):
        shared["channel"] = channel
        return layer.register_forward_hook(lambda module, args, output: off(output, shared["channel"]))

    return answer


# --- 3.3


def uses(keep=lambda args, output: output.detach().clone(), finish=lambda found, result: found, **parts):
    return seeing(keep, finish=finish, **parts)


def without_repeats(found, result):
    kept = []
    for one in found:
        if not any(torch.equal(one, other) for other in kept):
            kept.append(one)
    return kept


def two_hooks_on_one_module(model, module, x):
    found = []

    def keep(module, args, output):
        found.append(output.detach().clone())

    with module.register_forward_hook(keep), module.register_forward_hook(keep):
        model(x)
    return found


def every_module_of_the_kind(model, module, x):
    found = []

    def keep(one, args, output):
        if type(one) is type(module):
            found.append(output.detach().clone())

    with torch.nn.modules.module.register_module_forward_hook(keep):
        model(x)
    return found


# --- 3.4


def walking(
    tensor=torch.Tensor.detach,
    kinds=(tuple, list, dict),
    rest=lambda part: part,
    depth=100,
    make=None,
    skip=lambda part: False,
):
    """Return a function that walks through a structure."""

    def walk(part, left):
        if isinstance(part, torch.Tensor):
            return tensor(part)
        if not left or not isinstance(part, kinds):
            return rest(part)
        if isinstance(part, dict):
            return {key: walk(one, left - 1) for key, one in part.items() if not skip(one)}
        return (make or type(part))([walk(one, left - 1) for one in part if not skip(one)])

    return lambda part: walk(part, depth)


def structured(form, **parts):
    return seeing(lambda args, output: form(output), **parts)


def handed_on(output):
    return walking()(output)


def written_into(part):
    if isinstance(part, torch.Tensor):
        return part.detach()
    if isinstance(part, tuple):
        return tuple(map(written_into, part))
    if isinstance(part, dict | list):
        for key in part if isinstance(part, dict) else range(len(part)):
            part[key] = written_into(part[key])
    return part


def detached_in_place(part):
    return part.detach_() if part.grad_fn is not None else part.detach()


def flattened(part):
    if isinstance(part, dict | tuple | list):
        return [one for inner in (part.values() if isinstance(part, dict) else part) for one in flattened(inner)]
    return [part.detach() if isinstance(part, torch.Tensor) else part]


def lazily(part):
    return part.detach() if isinstance(part, torch.Tensor) else (lazily(one) for one in part)


def helper_without_return(part):
    return part.detach() if isinstance(part, torch.Tensor) else None


def the_first_tensor(part):
    while not isinstance(part, torch.Tensor):
        part = next(iter(part.values() if isinstance(part, dict) else part))
    return part.detach()


# --- 3.5


def storing(captured, name, output):
    captured[name] = output.detach()


def hooks_on(model, names, captured, keep=storing, find=torch.nn.Module.get_submodule, change=nothing):
    """Register the hooks of a block, and return the handles."""
    handles = []
    for name, module in [(name, find(model, name)) for name in names]:

        def hook(module, args, output, name=name):
            keep(captured, name, output)
            return change(output)

        handles.append(module.register_forward_hook(hook))
    return handles


def capturing(
    start=lambda names: {},
    give=lambda captured: captured,
    end=nothing,
    known=lambda model, names: names,
    around=lambda model: contextlib.nullcontext(),
    remove=slice(None),
    **parts,
):
    """A block with hooks, with parts that can be exchanged."""

    @contextmanager
    def answer(model, names):
        captured = start(names)
        handles = hooks_on(model, known(model, names), captured, **parts)
        try:
            with around(model):
                yield give(captured)
        finally:
            end(captured)
            for handle in handles[remove]:
                handle.remove()

    return answer


def cleaning_up(errors):
    """Remove the hooks at the end of the block, and after these errors."""

    @contextmanager
    def answer(model, names):
        captured = {}
        handles = hooks_on(model, names, captured)
        try:
            yield captured
        except errors:
            [handle.remove() for handle in handles]
            raise
        [handle.remove() for handle in handles]

    return answer


@contextmanager
def binds_late(model, names):
    captured = {}
    with contextlib.ExitStack() as handles:
        for name, module in [(name, model.get_submodule(name)) for name in names]:
            hook = module.register_forward_hook(lambda m, args, output: captured.update({name: output.detach()}))  # noqa: B023
            handles.enter_context(hook)
        yield captured


@contextmanager
def searches_while_registering(model, names):
    captured, handles = {}, []
    for name in names:
        handles += hooks_on(model, [name], captured)
    try:
        yield captured
    finally:
        [handle.remove() for handle in handles]


def known_names(model, names):
    return [name for name in names if name in dict(model.named_modules())]


def registers_early(model, names):
    captured = {}
    hooks_on(model, names, captured)
    return contextlib.nullcontext(captured)


def returns_the_dictionary(model, names):
    captured = {}
    [handle.remove() for handle in hooks_on(model, names, captured)]
    return captured


def without_the_decorator(model, names):
    yield {}


def by_the_order_of_the_model(model, names):
    for name in names:
        model.get_submodule(name)
    in_order = known_names(model, [name for name, _ in model.named_modules() if name in names])
    return capturing(find=lambda model, name: model.get_submodule(in_order[names.index(name)]))(model, names)


MISCONCEPTIONS = {
    "3.1": {
        "models-result": seeing(finish=lambda found, result: result.detach()),
        "layer-alone": lambda model, layer, x: layer(x).detach(),
        "forward-alone": seeing(run=lambda model, x: model.forward(x)),
        "layers-input": seeing(lambda args, output: args[0].detach()),
        "whole-list": seeing(finish=lambda found, result: found),
        "forgotten-return": seeing(finish=nothing),
        "hook-left": seeing(remove=False),
        "on-the-graph": seeing(lambda args, output: output),
        "asks-for-grad": seeing(lambda args, output: output.detach().requires_grad_()),
        "returns-without-graph": seeing(change=torch.Tensor.detach),
        "returns-a-value": seeing(change=torch.zeros_like),
        "detached-in-place": seeing(lambda args, output: output.detach_()),
        "in-place": seeing(lambda args, output: output.detach().clone(), lambda output: output.data.mul_(2) and None),
        "another-module": seeing(which=lambda model, layer: next(model.children())),
        "runs-again": seeing(run=twice),
        "stopped": stopping,
        "mode-switched": seeing(run=in_evaluation_mode),
        "swallowed": seeing(run=silently),
    },
    "3.2": {
        "forgotten-return": switching(lambda output, channel: None),
        "in-place": switching(off_in_place),
        "cut-off": switching(lambda output, channel: off(output.detach(), channel)),
        "new-leaf": switching(a_new_leaf),
        "half-detached": switching(half_detached),
        "dimension-0": switching(off_at()),
        "dimension-2": switching(off_at(slice(None), slice(None))),
        "dimension-3": switching(off_at(...)),
        "inverted-mask": switching(one_only),
        "all-off": switching(lambda output, channel: output * 0),
        "taken-out": switching(a_channel_less),
        "scaled-up": switching(scaled_up),
        "always-the-same": switching(lambda output, channel: off(output, 1)),
        "from-there-on": switching(lambda output, channel: off(output, slice(channel, None))),
        "up-to-there": switching(lambda output, channel: off(output, slice(channel + 1))),
        "next-channel": switching(lambda output, channel: off(output, (channel + 1) % output.shape[1])),
        "first-sample": switching(off_at(0)),
        "mean-value": switching(
            lambda output, channel: output * mask(output, channel) + output.mean() * (1 - mask(output, channel))
        ),
        "rectified": switching(lambda output, channel: off(output.relu(), channel)),
        "another-dtype": switching(lambda output, channel: output * mask(output, channel, torch.float32)),
        "in-a-tuple": switching(lambda output, channel: (off(output, channel),)),
        "zero-is-false": switching(lambda output, channel: off(output, channel) if channel else None),
        "in-training-only": in_mode(True),
        "in-evaluation-only": in_mode(False),
        "zeroed-weights": zeroes_the_weights,
        "not-registered": lambda layer, channel: off(layer.weight[None], channel),
        "removed-too-early": removes_at_once,
        "another-kind": another_kind,
        "removes-itself": for_one_pass,
        "remembers": remembers_the_first,
        "ran-again": forward_again,
        "forgotten-handle": switching(off, finish=nothing),
        "two-hooks": two_hooks,
        "shared-channel": with_a_shared_channel(),
    },
    "3.3": {
        "overwritten": uses(finish=lambda found, result: found[-1:]),
        "first-alone": uses(finish=lambda found, result: found[:1]),
        "without-repeats": uses(finish=without_repeats),
        "same-memory": uses(lambda args, output: output.detach()),
        "on-the-graph": uses(lambda args, output: output.clone()),
        "asks-for-grad": uses(lambda args, output: output.detach().clone().requires_grad_()),
        "reversed": uses(finish=lambda found, result: found[::-1]),
        "inputs": uses(lambda args, output: args[0].detach().clone()),
        "repeats-the-last": uses(finish=lambda found, result: [found[-1] for _ in found]),
        "stacked": uses(finish=lambda found, result: torch.stack(found)),
        "one-use": uses(finish=lambda found, result: found[-1]),
        "a-dictionary": uses(finish=lambda found, result: dict(enumerate(found))),
        "numbers": uses(lambda args, output: output.tolist()),
        "kept-nothing": uses(finish=lambda found, result: []),
        "forgotten-return": uses(finish=nothing),
        "hook-left": uses(remove=False),
        "registered-twice": two_hooks_on_one_module,
        "every-module-of-the-kind": every_module_of_the_kind,
        "calls-the-module": lambda model, module, x: [module(x).detach()],
        "forward-alone": uses(run=lambda model, x: model.forward(x)),
        "runs-again": uses(run=twice),
        "mode-switched": uses(run=in_evaluation_mode),
        "returns-without-graph": uses(change=lambda output: output.detach().clone()),
        "returns-a-value": uses(change=torch.zeros_like),
        "detached-in-place": uses(lambda args, output: output.detach_().clone()),
        "swallowed": uses(run=silently),
    },
    "3.4": {
        "one-part": structured(the_first_tensor),
        "one-level": structured(walking(depth=1)),
        "two-levels": structured(walking(depth=2)),
        "no-dictionaries": structured(walking(kinds=(tuple, list))),
        "no-lists": structured(walking(kinds=(tuple, dict))),
        "no-tuples": structured(walking(kinds=(list, dict))),
        "on-the-graph": structured(lambda output: output),
        "asks-for-grad": structured(walking(lambda part: part.detach().requires_grad_())),
        "tuples-for-lists": structured(walking(make=tuple)),
        "lists-for-tuples": structured(walking(make=list)),
        "flattened": structured(flattened),
        "generator": structured(lazily),
        "forgotten-return": structured(helper_without_return),
        "without-none": structured(walking(skip=lambda part: part is None)),
        "tensors-alone": structured(
            walking(skip=lambda part: not isinstance(part, torch.Tensor | tuple | list | dict))
        ),
        "numbers-to-tensors": structured(
            walking(rest=lambda part: torch.tensor(part) if isinstance(part, int) else part)
        ),
        "zero-is-false": structured(walking(rest=lambda part: part or None)),
        "expects-a-tensor": structured(torch.Tensor.detach),
        "expects-a-number": structured(walking(rest=lambda part: part.detach())),
        "whole-list": structured(walking(), finish=lambda found, result: found),
        "models-result": structured(walking(), finish=lambda found, result: result.detach()),
        "layer-alone": lambda model, layer, x: walking()(layer(x)),
        "forward-alone": structured(walking(), run=lambda model, x: model.forward(x)),
        "runs-again": structured(walking(), run=twice),
        "mode-switched": structured(walking(), run=in_evaluation_mode),
        "hook-left": structured(walking(), remove=False),
        "written-into": structured(written_into),
        "detached-in-place": structured(walking(detached_in_place)),
        "returns-without-graph": structured(walking(), change=handed_on),
        "another-dtype": structured(walking(lambda part: part.detach().float())),
        "swallowed": structured(walking(), run=silently),
    },
    "3.5": {
        "no-finally": cleaning_up(()),
        "except-exception": cleaning_up(Exception),
        "registered-while-searching": searches_while_registering,
        "late-binding": binds_late,
        "skipped": capturing(known=known_names),
        "one-handle": capturing(remove=slice(-1, None)),
        "hook-left": capturing(remove=slice(0)),
        "swallowed": capturing(around=lambda model: contextlib.suppress(Exception)),
        "on-the-graph": capturing(keep=lambda captured, name, output: captured.update({name: output})),
        "asks-for-grad": capturing(
            keep=lambda captured, name, output: captured.update({name: output.detach().requires_grad_()})
        ),
        "another-dtype": capturing(
            keep=lambda captured, name, output: captured.update({name: output.detach().float()})
        ),
        "bare-yield": capturing(give=nothing),
        "emptied": capturing(end=dict.clear),
        "another-dictionary": capturing(give=dict),
        "never-registered": capturing(known=lambda model, names: [model.get_submodule(name) for name in names][:0]),
        "every-call": capturing(
            keep=lambda captured, name, output: captured.setdefault(name, []).append(output.detach())
        ),
        "first-call": capturing(keep=lambda captured, name, output: captured.setdefault(name, output.detach())),
        "under-another-key": capturing(
            keep=lambda captured, name, output: captured.update({len(captured): output.detach()})
        ),
        "short-names": capturing(
            keep=lambda captured, name, output: captured.update({name.rpartition(".")[2]: output.detach()})
        ),
        "children-alone": capturing(find=lambda model, name: dict(model.named_children())[name]),
        "order-of-the-model": by_the_order_of_the_model,
        "earlier": capturing(start=functools.partial(lambda shared, names: shared, {})),
        "registered-early": registers_early,
        "returns-without-graph": capturing(change=torch.Tensor.detach),
        "no-grad-around-yield": capturing(around=lambda model: torch.no_grad()),
        "returns-the-dictionary": returns_the_dictionary,
        "no-contextmanager": without_the_decorator,
    },
}
