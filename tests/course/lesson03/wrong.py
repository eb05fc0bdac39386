"""What people get wrong in lesson 3."""

import copy
import functools
from contextlib import contextmanager, suppress

import torch
from torch import nn

from tests.course.exercises.wrong import wrong

# --- 3.1


@wrong("3.1", says="that is the model's result")
def returns_the_models_result(model, layer, x):
    with layer.register_forward_hook(lambda module, args, output: None):
        return model(x).detach()


@wrong("3.1", says="layer alone")
def calls_the_layer_itself(model, layer, x):
    return layer(x).detach()


@wrong("3.1", says="left a hook behind: forward hook `store`")
def never_removes(model, layer, x):
    stored = []

    def store(module, args, output):
        stored.append(output.detach())

    layer.register_forward_hook(store)
    model(x)
    return stored[0]


@wrong("3.1", says="not detached")
def keeps_the_graph(model, layer, x):
    stored = []
    with layer.register_forward_hook(lambda module, args, output: stored.append(output)):
        model(x)
    return stored[0]


@wrong("3.1", says="args instead of output")
def keeps_the_input(model, layer, x):
    stored = []
    with layer.register_forward_hook(lambda module, args, output: stored.append(args[0].detach())):
        model(x)
    return stored[0]


@wrong("3.1", says="cut the model's graph")
def detaches_and_returns_it_from_the_hook(model, layer, x):
    stored = []

    def store(module, args, output):
        stored.append(output.detach())
        return stored[0]

    with layer.register_forward_hook(store):
        model(x)
    return stored[0]


@wrong("3.1", says="changed what the model computes")
def hook_returns_what_it_took_in(model, layer, x):
    stored = []

    def store(module, args, output):
        stored.append(output.detach())
        return args[0]

    with layer.register_forward_hook(store):
        model(x)
    return stored[0]


@wrong("3.1", says="a list came back, with the output in it")
def returns_the_list(model, layer, x):
    stored = []
    with layer.register_forward_hook(lambda module, args, output: stored.append(output.detach())):
        model(x)
    return stored


@wrong("3.1", says="assigns to a name of its own")
def hook_assigns_to_its_own_name(model, layer, x):
    stored = None

    def store(module, args, output):
        stored = output.detach()  # noqa: F841

    with layer.register_forward_hook(store):
        model(x)
    return stored


@wrong("3.1", says="an empty or short list")
def removes_before_the_call(model, layer, x):
    stored = []
    layer.register_forward_hook(lambda module, args, output: stored.append(output.detach())).remove()
    model(x)
    return stored[0]


@wrong("3.1", says="another hook's arguments")
def hook_with_two_arguments(model, layer, x):
    stored = []

    def store(module, output):
        stored.append(output.detach())

    with layer.register_forward_hook(store):
        model(x)
    return stored[0]


@wrong("3.1", says="a tuple: args always is one")
def detaches_the_tuple(model, layer, x):
    stored = []
    with layer.register_forward_hook(lambda module, args, output: stored.append(args.detach())):
        model(x)
    return stored[0]


@wrong("3.1", says="that is not what 'body.second' put out")
def hooks_the_first_child(model, layer, x):
    stored = []
    with next(model.children()).register_forward_hook(lambda module, args, output: stored.append(output.detach())):
        model(x)
    return stored[0]


@wrong("3.1", says="model(x) ran 2 times")
def runs_once_more_for_the_result(model, layer, x):
    stored = []
    with layer.register_forward_hook(lambda module, args, output: stored.append(output.detach())):
        model(x)
    model(x)
    return stored[0]


# --- 3.2


@wrong("3.2", says="a new tensor that the hook does not return is lost")
def forgets_to_return_the_new_output(layer, channel):
    def hook(module, args, output):
        output = output.clone()
        output[:, channel] = 0

    return layer.register_forward_hook(hook)


@wrong("3.2", says="wrote into the layer's own output")
def writes_in_place(layer, channel):
    def hook(module, args, output):
        output[:, channel] = 0

    return layer.register_forward_hook(hook)


@wrong("3.2", says="no gradient can flow")
def detaches(layer, channel):
    def hook(module, args, output):
        output = output.detach().clone()
        output[:, channel] = 0
        return output

    return layer.register_forward_hook(hook)


@wrong("3.2", says="sample 1 is off")
def switches_off_a_sample(layer, channel):
    def hook(module, args, output):
        output = output.clone()
        output[channel] = 0
        return output

    return layer.register_forward_hook(hook)


@wrong("3.2", says="column 1 is off")
def switches_off_a_column(layer, channel):
    def hook(module, args, output):
        output = output.clone()
        output[..., channel] = 0
        return output

    return layer.register_forward_hook(hook)


@wrong("3.2", says="the other way round")
def keeps_only_that_channel(layer, channel):
    def hook(module, args, output):
        mask = torch.zeros_like(output)
        mask[:, channel] = 1
        return output * mask

    return layer.register_forward_hook(hook)


@wrong("3.2", says="taken out instead of switched off")
def takes_the_channel_out(layer, channel):
    def hook(module, args, output):
        return torch.cat([output[:, :channel], output[:, channel + 1 :]], dim=1)

    return layer.register_forward_hook(hook)


@wrong("3.2", says="did not return the handle")
def keeps_the_handle(layer, channel):
    def hook(module, args, output):
        mask = torch.ones_like(output)
        mask[:, channel] = 0
        return output * mask

    layer.register_forward_hook(hook)


@wrong("3.2", says="changed the parameter 'weight' in place")
def zeroes_the_weights(layer, channel):
    with torch.no_grad():
        layer.weight[channel] = 0
        layer.bias[channel] = 0
    return layer.register_forward_hook(lambda module, args, output: None)


@wrong("3.2", says="no forward hook is on the layer")
def removes_at_once(layer, channel):
    def hook(module, args, output):
        output = output.clone()
        output[:, channel] = 0
        return output

    with layer.register_forward_hook(hook) as handle:
        return handle


@wrong("3.2", says="in the second pass the channel is on again")
def removes_itself_after_one_pass(layer, channel):
    def hook(module, args, output):
        handle.remove()
        output = output.clone()
        output[:, channel] = 0
        return output

    handle = layer.register_forward_hook(hook)
    return handle


@wrong("3.2", says="every channel is off")
def switches_everything_off(layer, channel):
    return layer.register_forward_hook(lambda module, args, output: output * 0)


@wrong("3.2", says="after handle.remove() the channel is still off")
def registers_twice(layer, channel):
    def hook(module, args, output):
        output = output.clone()
        output[:, channel] = 0
        return output

    layer.register_forward_hook(hook)
    return layer.register_forward_hook(hook)


@wrong("3.2", says="channel 2 is not the one that is off")
def always_channel_one(layer, channel):
    def hook(module, args, output):
        output = output.clone()
        output[:, 1] = 0
        return output

    return layer.register_forward_hook(hook)


@wrong("3.2", says="the other channels have changed")
def scales_the_others_as_dropout_does(layer, channel):
    def hook(module, args, output):
        count = output.shape[1]
        output = output * count / (count - 1)
        output[:, channel] = 0
        return output

    return layer.register_forward_hook(hook)


@wrong("3.2", says="not that of the other channels")
def detaches_half_of_it(layer, channel):
    def hook(module, args, output):
        mask = torch.ones_like(output)
        mask[:, channel] = 0
        return mask * (output + output.detach()) / 2

    return layer.register_forward_hook(hook)


# --- 3.3


@wrong("3.3", says="overwritten")
def keeps_the_last_in_a_dictionary(model, module, x):
    kept = {}
    with module.register_forward_hook(lambda m, args, output: kept.update(out=output.detach().clone())):
        model(x)
    return list(kept.values())


@wrong("3.3", says="the model adds 1000 in place afterwards")
def does_not_clone(model, module, x):
    uses = []
    with module.register_forward_hook(lambda m, args, output: uses.append(output.detach())):
        model(x)
    return uses


@wrong("3.3", says="`output.clone()` alone is not enough")
def clones_and_does_not_detach(model, module, x):
    uses = []
    with module.register_forward_hook(lambda m, args, output: uses.append(output.clone())):
        model(x)
    return uses


@wrong("3.3", says="reverse order")
def inserts_in_front(model, module, x):
    uses = []
    with module.register_forward_hook(lambda m, args, output: uses.insert(0, output.detach().clone())):
        model(x)
    return uses


@wrong("3.3", says="a default argument or a global list")
def shares_one_list(model, module, x, uses=[]):  # noqa: B006
    with module.register_forward_hook(lambda m, args, output: uses.append(output.detach().clone())):
        model(x)
    return list(uses)


@wrong("3.3", says="left a hook behind")
def adds_a_hook_at_each_call(model, module, x):
    uses = []
    module.register_forward_hook(lambda m, args, output: uses.append(output.detach().clone()))
    model(x)
    return uses


@wrong("3.3", says="registered twice")
def two_hooks_on_one_module(model, module, x):
    uses = []

    def keep(m, args, output):
        uses.append(output.detach().clone())

    with module.register_forward_hook(keep), module.register_forward_hook(keep):
        model(x)
    return uses


@wrong("3.3", says="the model was called 2 times")
def runs_the_model_twice(model, module, x):
    uses = []
    with module.register_forward_hook(lambda m, args, output: uses.append(output.detach().clone())):
        model(x)
        model(x)
    return uses


@wrong("3.3", says="stacked")
def stacks_the_uses(model, module, x):
    uses = []
    with module.register_forward_hook(lambda m, args, output: uses.append(output.detach().clone())):
        model(x)
    return torch.stack(uses)


@wrong("3.3", says="args instead of output")
def keeps_the_inputs(model, module, x):
    uses = []
    with module.register_forward_hook(lambda m, args, output: uses.append(args[0].detach().clone())):
        model(x)
    return uses


@wrong("3.3", says="changed what the model computes")
def replaces_by_the_first(model, module, x):
    uses = []

    def hook(m, args, output):
        uses.append(output.detach().clone())
        return uses[0]

    with module.register_forward_hook(hook):
        model(x)
    return uses


@wrong("3.3", says="cut the model's graph")
def returns_its_copy_from_the_hook(model, module, x):
    uses = []

    def hook(m, args, output):
        uses.append(output.detach().clone())
        return uses[-1].clone()

    with module.register_forward_hook(hook):
        model(x)
    return uses


@wrong("3.3", says="model(x) did not run")
def calls_the_module_itself(model, module, x):
    return [module(x).detach()]


@wrong("3.3", says="forgotten return")
def forgets_to_return_the_list(model, module, x):
    uses = []
    with module.register_forward_hook(lambda m, args, output: uses.append(output.detach().clone())):
        model(x)


@wrong("3.3", says="those are not the module's outputs")
def repeats_the_last(model, module, x):
    uses = []
    with module.register_forward_hook(lambda m, args, output: uses.append(output.detach().clone())):
        model(x)
    return [uses[-1] for _ in uses]


# --- 3.4


def structure_with(detached, model, layer, x):
    """What an answer gives that walks through the parts with `detached`."""
    found = []
    with layer.register_forward_hook(lambda module, args, output: found.append(detached(output))):
        model(x)
    return found[0]


@wrong("3.4", says="a tuple: args always is one")
def expects_a_tensor(model, layer, x):
    return structure_with(lambda output: output.detach(), model, layer, x)


@wrong("3.4", says="only one part kept")
def keeps_the_first_part(model, layer, x):
    return structure_with(lambda output: output[0].detach(), model, layer, x)


@wrong("3.4", says="not deep enough")
def one_level_only(model, layer, x):
    def detached(parts):
        return tuple(one.detach() if isinstance(one, torch.Tensor) else one for one in parts)

    return structure_with(detached, model, layer, x)


@wrong("3.4", says="a tuple must stay a tuple")
def makes_lists(model, layer, x):
    def detached(part):
        if isinstance(part, torch.Tensor):
            return part.detach()
        if isinstance(part, dict):
            return {key: detached(one) for key, one in part.items()}
        return [detached(one) for one in part] if isinstance(part, list | tuple) else part

    return structure_with(detached, model, layer, x)


@wrong("3.4", says="None: a part of the output")
def forgets_none(model, layer, x):
    def detached(part):
        if isinstance(part, dict):
            return {key: detached(one) for key, one in part.items()}
        return type(part)(map(detached, part)) if isinstance(part, list | tuple) else part.detach()

    return structure_with(detached, model, layer, x)


@wrong("3.4", says="writing into the model's own dictionary")
def writes_into_the_models_dictionary(model, layer, x):
    def detached(part):
        if isinstance(part, torch.Tensor):
            return part.detach()
        if isinstance(part, tuple):
            return tuple(map(detached, part))
        for key in part if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ():
            part[key] = detached(part[key])
        return part

    return structure_with(detached, model, layer, x)


@wrong("3.4", says="the model noticed your hook")
def detaches_in_place(model, layer, x):
    def detached(part):
        for one in part.values() if isinstance(part, dict) else part if isinstance(part, list | tuple) else ():
            detached(one)
        return part.detach_() if isinstance(part, torch.Tensor) else part

    return structure_with(detached, model, layer, x)


@wrong("3.4", says="deepcopy: it cannot copy tensors with a graph")
def copies_deeply(model, layer, x):
    return structure_with(copy.deepcopy, model, layer, x)


@wrong("3.4", says="lost on the way")
def drops_what_is_no_tensor(model, layer, x):
    def detached(part):
        if isinstance(part, dict):
            return {key: detached(one) for key, one in part.items() if not isinstance(one, int | type(None))}
        return type(part)(map(detached, part)) if isinstance(part, list | tuple) else part.detach()

    return structure_with(detached, model, layer, x)


@wrong("3.4", says="write tuple(...) around it")
def gives_a_generator(model, layer, x):
    def detached(part):
        if isinstance(part, torch.Tensor):
            return part.detach()
        return (detached(one) for one in part)

    return structure_with(detached, model, layer, x)


@wrong("3.4", says="in the helper that walks through the parts")
def helper_forgets_to_return(model, layer, x):
    def detached(part):
        if isinstance(part, torch.Tensor):
            return part.detach()
        tuple(map(detached, part))
        return None

    return structure_with(detached, model, layer, x)


@wrong("3.4", says="model(x) did not run")
def calls_the_layer_without_the_model(model, layer, x):
    with torch.no_grad():
        return layer(x)


@wrong("3.4", says="has other numbers")
def halves_the_numbers(model, layer, x):
    def detached(part):
        if isinstance(part, torch.Tensor):
            return part.detach() / 2
        if isinstance(part, dict):
            return {key: detached(one) for key, one in part.items()}
        return type(part)(map(detached, part)) if isinstance(part, list | tuple) else part

    return structure_with(detached, model, layer, x)


@wrong("3.4", says="what is no tensor stays as it is")
def makes_tensors_of_numbers(model, layer, x):
    def detached(part):
        if isinstance(part, torch.Tensor):
            return part.detach()
        if isinstance(part, dict):
            return {key: detached(one) for key, one in part.items()}
        if isinstance(part, list | tuple):
            return type(part)(map(detached, part))
        return torch.tensor(part) if isinstance(part, int) else part

    return structure_with(detached, model, layer, x)


# --- 3.5


def storing_as(captured, name):
    def hook(module, args, output):
        captured[name] = output.detach()

    return hook


@wrong("3.5", says="no finally")
@contextmanager
def cleans_up_after_a_bare_yield(model, names):
    captured = {}
    modules = [model.get_submodule(name) for name in names]
    handles = [m.register_forward_hook(storing_as(captured, name)) for m, name in zip(modules, names, strict=True)]
    yield captured
    for handle in handles:
        handle.remove()


@wrong("3.5", says="registered while searching")
@contextmanager
def searches_while_registering(model, names):
    captured = {}
    handles = [model.get_submodule(name).register_forward_hook(storing_as(captured, name)) for name in names]
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


@wrong("3.5", says="late binding")
@contextmanager
def binds_late(model, names):
    captured, handles = {}, []
    modules = [model.get_submodule(name) for name in names]
    for name, module in zip(names, modules, strict=True):

        def hook(module, args, output):
            captured[name] = output.detach()  # noqa: B023

        handles.append(module.register_forward_hook(hook))
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


@wrong("3.5", says="skipped in silence")
@contextmanager
def loops_over_the_models_modules(model, names):
    captured = {}
    handles = [
        module.register_forward_hook(storing_as(captured, name))
        for name, module in model.named_modules()
        if name in names
    ]
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


@wrong("3.5", says="`_forward_hooks.clear()` removes everybody's")
@contextmanager
def clears_all_hooks(model, names):
    captured = {}
    modules = {name: model.get_submodule(name) for name in names}
    for name, module in modules.items():
        module.register_forward_hook(storing_as(captured, name))
    try:
        yield captured
    finally:
        for module in modules.values():
            module._forward_hooks.clear()


@wrong("3.5", says="The exception gets lost")
class ReturnsTrueFromExit:
    def __init__(self, model, names):
        self.modules = {name: model.get_submodule(name) for name in names}

    def __enter__(self):
        captured = {}
        self.handles = [m.register_forward_hook(storing_as(captured, name)) for name, m in self.modules.items()]
        return captured

    def __exit__(self, *error):
        for handle in self.handles:
            handle.remove()
        return True


@wrong("3.5", says="captured['body.first'] is not detached")
@contextmanager
def keeps_graphs(model, names):
    captured = {}
    modules = {name: model.get_submodule(name) for name in names}
    handles = [
        module.register_forward_hook(lambda m, args, output, name=name: captured.update({name: output}))
        for name, module in modules.items()
    ]
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


@wrong("3.5", says="bare yield")
@contextmanager
def yields_nothing(model, names):
    captured = {}
    modules = {name: model.get_submodule(name) for name in names}
    handles = [module.register_forward_hook(storing_as(captured, name)) for name, module in modules.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@wrong("3.5", says="emptied at the end")
@contextmanager
def empties_at_the_end(model, names):
    captured = {}
    modules = {name: model.get_submodule(name) for name in names}
    handles = [module.register_forward_hook(storing_as(captured, name)) for name, module in modules.items()]
    try:
        yield captured
    finally:
        captured.clear()
        for handle in handles:
            handle.remove()


@wrong("3.5", says="is a list")
@contextmanager
def keeps_every_call_in_a_list(model, names):
    captured = {name: [] for name in names}
    modules = {name: model.get_submodule(name) for name in names}
    handles = [
        module.register_forward_hook(lambda m, args, output, name=name: captured[name].append(output.detach()))
        for name, module in modules.items()
    ]
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


@wrong("3.5", says="cannot stand after `with`")
def returns_the_dictionary(model, names):
    captured = {}
    for name in names:
        model.get_submodule(name).register_forward_hook(storing_as(captured, name)).remove()
    return captured


@wrong("3.5", says="cut the model's graph")
@contextmanager
def lambda_that_returns(model, names):
    captured = {}
    modules = {name: model.get_submodule(name) for name in names}
    handles = [
        module.register_forward_hook(lambda m, args, output, name=name: captured.setdefault(name, output.detach()))
        for name, module in modules.items()
    ]
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


@wrong("3.5", says="not what 'body.first' put out in the last call")
@contextmanager
def keeps_the_first_call(model, names):
    captured = {}
    modules = {name: model.get_submodule(name) for name in names}

    def first_only(name):
        def hook(module: nn.Module, args, output):
            captured.setdefault(name, output.detach())

        return hook

    handles = [module.register_forward_hook(first_only(name)) for name, module in modules.items()]
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


@wrong("3.5", says="the names are not those asked for")
@contextmanager
def stores_under_the_module(model, names):
    captured = {}
    modules = [model.get_submodule(name) for name in names]
    handles = [m.register_forward_hook(lambda m, args, output: captured.update({m: output.detach()})) for m in modules]
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


# --- found by attacking the checks


@wrong("3.2", says="kept from the first pass")
def remembers_the_first_output(layer, channel):
    kept = []

    def hook(module, args, output):
        if not kept:
            output = output.clone()
            output[:, channel] = 0
            kept.append(output)
        return kept[0]

    return layer.register_forward_hook(hook)


@wrong("3.3", says="model(x) ran 2 times")
def runs_once_without_the_hook(model, module, x):
    uses = []
    model(x)
    with module.register_forward_hook(lambda m, args, output: uses.append(output.detach().clone())):
        model(x)
    return uses


@wrong("3.4", says="that is the model's result")
def returns_what_the_model_returns(model, layer, x):
    return model(x).detach()


@wrong("3.4", says="such as a string")
def walks_through_strings(model, layer, x):
    def detached(part):
        if isinstance(part, torch.Tensor):
            return part.detach()
        if isinstance(part, dict):
            return {key: detached(one) for key, one in part.items()}
        return type(part)([detached(one) for one in part]) if hasattr(part, "__iter__") else part

    return structure_with(detached, model, layer, x)


@wrong("3.5", says="hooks are on the model before the block begins")
class RegistersInInit:
    def __init__(self, model, names):
        modules = {name: model.get_submodule(name) for name in names}
        self.captured = {}
        self.handles = [m.register_forward_hook(storing_as(self.captured, name)) for name, m in modules.items()]

    def __enter__(self):
        return self.captured

    def __exit__(self, *error):
        for handle in self.handles:
            handle.remove()


@wrong("3.5", says="a second block writes into the dictionary of the first one")
@contextmanager
def shares_one_dictionary(model, names, captured={}):  # noqa: B006
    modules = {name: model.get_submodule(name) for name in names}
    handles = [module.register_forward_hook(storing_as(captured, name)) for name, module in modules.items()]
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


@wrong("3.5", says="return under @contextmanager")
@contextmanager
def returns_instead_of_yielding(model, names):
    return dict.fromkeys(names)


@wrong("3.5", says="two yields")
@contextmanager
def yields_twice(model, names):
    captured = {}
    handles = []
    for name in names:
        hook = functools.partial(lambda name, module, args, output: captured.update({name: output.detach()}), name)
        handles.append(model.get_submodule(name).register_forward_hook(hook))
    yield captured
    yield captured
    for handle in handles:
        handle.remove()


@wrong("3.1", says="calls `model.forward(…)`")
def goes_past_the_call(model, layer, x):
    stored = []
    with layer.register_forward_hook(lambda module, args, output: stored.append(output.detach())):
        model.forward(x)
    return stored[0]


@wrong("3.1", says="stopped before its end")
def stops_half_way(model, layer, x):
    stored = []

    def stop(module, args, output):
        stored.append(output.detach())
        raise StopIteration

    with layer.register_forward_hook(stop), suppress(StopIteration):
        model(x)
    return stored[0]


@wrong("3.1", says="evaluation mode")
def leaves_the_model_in_eval_mode(model, layer, x):
    stored = []
    model.eval()
    with layer.register_forward_hook(lambda module, args, output: stored.append(output.detach())):
        model(x)
    return stored[0]


@wrong("3.2", says="a new leaf")
def begins_a_graph_of_its_own(layer, channel):
    def hook(module, args, output):
        changed = output.detach().clone().requires_grad_()
        mask = torch.ones(output.shape[1])
        mask[channel] = 0
        return changed * mask[:, None, None]

    return layer.register_forward_hook(hook)


@wrong("3.4", says="how many times your function runs the model")
def runs_the_model_beforehand(model, layer, x):
    found = []
    model(x)
    with layer.register_forward_hook(lambda module, args, output: found.append(walk(output))):
        model(x)
    return found[0]


@wrong("3.4", says="calls `model.forward(…)`")
def calls_forward_itself(model, layer, x):
    found = []
    with layer.register_forward_hook(lambda module, args, output: found.append(walk(output))):
        model.forward(x)
    return found[0]


def walk(part):
    if isinstance(part, torch.Tensor):
        return part.detach()
    if isinstance(part, tuple | list):
        return type(part)(walk(one) for one in part)
    if isinstance(part, dict):
        return {key: walk(one) for key, one in part.items()}
    return part


@wrong("3.5", says="another dictionary")
@contextmanager
def yields_a_copy(model, names):
    modules = {name: model.get_submodule(name) for name in names}
    outputs = {}
    handles = []
    try:
        for name, module in modules.items():
            handles.append(
                module.register_forward_hook(
                    lambda module, args, output, name=name: outputs.update({name: output.detach()})
                )
            )
        yield dict(outputs)
    finally:
        for handle in handles:
            handle.remove()
