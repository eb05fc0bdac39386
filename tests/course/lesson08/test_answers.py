"""Unusual right answers to lesson 8's exercises, and wrong ones: none is misjudged, and no reason is untrue."""

import copy
import math
from collections import OrderedDict

import torch
from torch import nn

import hooklab
from hooklab.course.lesson08.clinic import examine, layers, patient
from tests.course.exercises.answers import Answers

answers = Answers("8.1", "8.2", "8.3", "8.4", "8.5", "8.6", "8.7")
right = answers.right


def wrong(id, says, likely=None):
    return answers.wrong(id, likely, says)


def named(name, function):
    function.__name__ = name
    return function


# --- 8.1


@right("8.1")
def by_monitor_and_its_text(model, x):
    names = dict(model.named_modules())
    with hooklab.capture(model, *names, inputs=True, clone=True) as seen:
        model(x)
    calls = sorted(
        (call for name in names for call in seen.calls(name)), key=lambda call: call._end is None or call.place
    )
    ends = [event[0] for event in seen._record.ends()]
    for module in ends:
        name = next(name for name, one in names.items() if one is module)
        for call in calls:
            if call.name == name and not call.output.isfinite().all():
                given = torch.cat([one.flatten() for one in call.input.args])
                if given.isfinite().all():
                    return name, given.abs().max()
    return None


@right("8.1")
def as_a_list_and_a_tensor(model, x):
    found = []

    def hook(name):
        def look(module, args, output):
            flat = torch.cat([one.reshape(-1) for one in args])
            if not found and flat.isfinite().all() and not output.isfinite().all():
                found.extend([name, flat.abs().max()])

        return look

    handles = [module.register_forward_hook(hook(name)) for name, module in model.named_modules()]
    model(x)
    [handle.remove() for handle in handles]
    return found or None


class Stop(Exception):
    pass


@right("8.1")
def stops_there(model, x):
    names = {id(module): name for name, module in model.named_modules()}

    def look(module, args, output):
        if not torch.isfinite(output).all() and all(torch.isfinite(one).all() for one in args):
            raise Stop(names[id(module)], max(float(one.abs().max()) for one in args))

    handles = [module.register_forward_hook(look) for module in model.modules()]
    try:
        model(x)
    except Stop as stop:
        return stop.args
    finally:
        for handle in handles:
            handle.remove()


@right("8.1")
def with_kwargs_and_a_sum(model, x):
    found = {}

    def look(module, args, kwargs, output):
        given = [*args, *kwargs.values()]
        healthy = not math.isnan(sum((one * 0).sum().item() for one in given))
        if healthy and math.isnan((output * 0).sum().item()):
            found.setdefault(module, max(one.abs().max().item() for one in given))

    handles = [module.register_forward_hook(look, with_kwargs=True) for module in model.modules()]
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    for module, largest in found.items():
        return {one: name for name, one in model.named_modules()}[module], largest


@right("8.1")
def by_a_hook_of_all_modules(model, x):
    names, found = {module: name for name, module in model.named_modules()}, []

    def look(module, args, output):
        if module in names and not output.isfinite().all() and all(one.isfinite().all() for one in args):
            found.append((names[module], max(one.abs().max() for one in args).item()))

    with nn.modules.module.register_module_forward_hook(look):
        model(x)
    return next(iter(found), None)


def _hooked(choose):
    """An answer that watches all modules and takes what `choose` says of (name, args, output)."""

    def answer(model, x):
        found, handles = [], []
        for name, module in model.named_modules():
            handles.append(
                module.register_forward_hook(
                    lambda module, args, output, name=name: found.extend(choose(name, args, output))
                )
            )
        model(x)
        for handle in handles:
            handle.remove()
        return found

    return answer


def _made(name, args, output):
    if all(one.isfinite().all() for one in args) and not output.isfinite().all():
        return [(name, max(one.abs().max().item() for one in args))]
    return []


@wrong("8.1", says="in a model in which all is finite your result is not None")
def all_of_them(model, x):
    return _hooked(_made)(model, x)


@wrong("8.1", says="your result is not a pair")
def the_name_alone(model, x):
    found = _hooked(_made)(model, x)
    return found[0][0] if found else None


@wrong("8.1", says="you return the module")
def the_module_itself(model, x):
    found = _hooked(_made)(model, x)
    return (model.get_submodule(found[0][0]), found[0][1]) if found else None


@wrong("8.1", says="the largest magnitude is another one")
def the_largest_of_all_outputs(model, x):
    found = _hooked(_made)(model, x)
    return (found[0][0], x.abs().mean().item()) if found else None


@wrong("8.1", says="the second of the pair is no number")
def the_input_itself(model, x):
    found = _hooked(_made)(model, x)
    return (found[0][0], str(found[0][1])) if found else None


@wrong("8.1", says="your code left a hook behind", likely="not removed")
def leaves_its_hooks(model, x):
    found = []
    for name, module in model.named_modules():
        module.register_forward_hook(lambda module, args, output, name=name: found.extend(_made(name, args, output)))
    model(x)
    return found[0] if found else None


@wrong("8.1", says="the name is another one", likely="the last of them")
def the_last_of_them(model, x):
    found = _hooked(lambda name, args, output: [] if output.isfinite().all() else [(name, args[0].abs().max().item())])
    found = found(model, x)
    return found[-1] if found and x.isfinite().all() else None


@wrong("8.1", says="the name is another one", likely="one name for all")
def the_last_name_of_a_loop(model, x):
    found = []
    handles = []
    for name, module in model.named_modules():
        handles.append(
            module.register_forward_hook(
                lambda module, args, output: found.extend(_made(name, args, output))  # noqa: B023
            )
        )
    model(x)
    for handle in handles:
        handle.remove()
    return found[0] if found else None


def _of_dictionary(is_it):
    """An answer that notes what it wants in a dictionary, and goes through the model's names afterwards."""

    def answer(model, x):
        found = dict(_hooked(is_it)(model, x))
        return next(((name, found[name]) for name, _ in model.named_modules() if name in found), None)

    return answer


@wrong("8.1", says="the name is another one", likely="the order of named_modules()")
def asks_in_the_order_of_names(model, x):
    return _of_dictionary(_made)(model, x)


def _given_first(keep):
    """An answer that sees the first argument only, and gives `keep` of it."""

    def choose(name, args, output):
        if args[0].isfinite().all() and not output.isfinite().all():
            return [(name, keep(args[0]).item())]
        return []

    return lambda model, x: next(iter(_hooked(choose)(model, x)), None)


@wrong("8.1", says="in a part with two arguments, 0 and 0", likely="the first argument only")
def sees_the_first_argument_only(model, x):
    return _given_first(lambda one: one.abs().max())(model, x)


@wrong("8.1", says="in an exp that overflows to inf your result is None", likely="nan only")
def asks_isnan(model, x):
    def choose(name, args, output):
        if output.isnan().any() and not any(one.isnan().any() for one in args):
            return [(name, max(one.abs().max().item() for one in args))]
        return []

    return next(iter(_hooked(choose)(model, x)), None)


@wrong("8.1", says="in a log of a negative number: nan, in one place of three the largest", likely="the largest value")
def the_first_argument_without_its_sign(model, x):
    return _given_first(lambda one: one.max())(model, x)  # two mistakes: the first that shows is told


@wrong("8.1", says="your result is None", likely="None in every model")
def forgets_to_return(model, x):
    _hooked(_made)(model, x)


# --- 8.2 to 8.7: what is right for one patient, in several ways


def adam(training, lr):
    training.optimizer = torch.optim.Adam(training.model.parameters(), lr=lr)


@right("8.2")
def another_optimizer(training):
    adam(training, 0.002)
    return ["act3", "dead"]


@right("8.2")
def normalised_and_slower(training):
    parts = OrderedDict()
    for name, part in training.model.named_children():
        parts[name] = part
        if name.startswith("fc"):
            parts[f"norm_{name}"] = nn.BatchNorm1d(32)
    training.model = nn.Sequential(parts)
    adam(training, 0.01)
    return "act4", "dead"


@right("8.2")
def sgd_with_momentum(training):
    training.optimizer = torch.optim.SGD(training.model.parameters(), lr=0.02, momentum=0.9)
    return "act1", "dead"


@right("8.2")
def leaky_and_slower(training):
    for number in range(1, 5):
        setattr(training.model, f"act{number}", nn.LeakyReLU(0.1))
    adam(training, 0.005)
    return "act1", "dead"


@right("8.2")
def a_net_of_its_own(training):
    training.model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 10))
    adam(training, 0.01)
    return "act1", "dead"


@right("8.3")
def tanh_with_a_spread(training):
    training.model = layers(nn.Tanh, 8, spread=1.2)
    adam(training, 0.003)
    return "fc1", "vanishing"


@right("8.3")
def normalised_sigmoids(training):
    parts = OrderedDict()
    for name, part in training.model.named_children():
        parts[name] = part
        if name.startswith("fc"):
            parts[f"norm_{name}"] = nn.BatchNorm1d(32)
    training.model = nn.Sequential(parts)
    adam(training, 0.02)
    return "fc2", "vanishing"


@right("8.3")
def fewer_layers(training):
    training.model = layers(nn.Sigmoid, 1)
    adam(training, 0.03)
    return "act1", "vanishing"


@right("8.3")
def in_place_of_the_parts(training):
    for name, part in list(training.model.named_children()):
        if name.startswith("act"):
            setattr(training.model, name, nn.ReLU())
        else:
            nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
            nn.init.zeros_(part.bias)
    adam(training, 0.003)
    return "fc1", "vanishing"


@right("8.3")
def by_add_param_group(training):
    training.model = layers(nn.ReLU, 3, spread=2**0.5)
    training.optimizer = torch.optim.AdamW([{"params": list(training.model.parameters())}], lr=0.005)
    return "fc1", "vanishing"


@right("8.4")
def divides_again(training):
    before = training.prepare
    training.prepare = lambda pixels: before(pixels) / 255
    return "act1", "saturated"


@right("8.4")
def centred_pixels(training):
    training.prepare = lambda pixels: (pixels - 0.3) / 0.4
    return "act1", "saturated"


@right("8.4")
def a_norm_at_the_door(training):
    training.model = nn.Sequential(nn.BatchNorm1d(64), training.model)
    adam(training, 0.01)
    return "act1", "saturated"


@right("8.4")
def smaller_first_weights(training):
    with torch.no_grad():
        training.model.fc1.weight.div_(255)
    training.optimizer.param_groups[0]["lr"] = 0.01
    training.prepare = lambda pixels: 2 * pixels
    return "act1", "saturated"


@right("8.4")
def a_layer_norm_before_tanh(training):
    training.model.act1 = nn.Sequential(nn.LayerNorm(32), nn.Tanh())
    adam(training, 0.01)
    return ["act1", "saturated"]


@right("8.5")
def all_parameters_again(training):
    adam(training, 0.01)
    return "head", "not in the optimizer"


@right("8.5")
def one_group_more(training):
    training.optimizer.add_param_group({"params": training.model.head.parameters()})
    return "head", "not in the optimizer"


@right("8.5")
def only_those_that_ask(training):
    asks = [one for one in training.model.parameters() if one.requires_grad]
    training.optimizer = torch.optim.SGD(asks, lr=1.0, momentum=0.9)
    return "head", "not in the optimizer"


@right("8.5")
def a_head_again_and_its_optimizer(training):
    training.model.head = nn.Linear(128, 10)
    training.optimizer = torch.optim.Adam(training.model.head.parameters(), lr=0.02)
    return ["head", "not in the optimizer"]


@right("8.5")
def puts_them_into_the_group(training):
    training.optimizer.param_groups[0]["params"] = list(training.model.head.parameters())
    return "head", "not in the optimizer"


@right("8.6")
def another_forward(training):
    model = training.model
    model.forward = lambda x: model.reader(model.encoder.forward(x))  # calls no hook
    return "encoder.2", "detached"


@right("8.6")
def a_hook_that_returns_nothing(training):
    training.handles[0].remove()
    training.model.encoder.register_forward_hook(
        lambda module, args, output: setattr(module, "kept", output.detach().mean(dim=0).tolist())
    )
    return "encoder", "detached"


@right("8.6")
def a_hook_that_returns_the_output_itself(training):
    training.handles.pop().remove()
    training.handles.append(training.model.encoder[2].register_forward_hook(lambda module, args, output: output))
    return "encoder.2", "detached"


@wrong("8.6", says="mended, it reads", likely="a part still gets no gradient")
def takes_the_hook_along(training):
    training.model = nn.Sequential(training.model.encoder, training.model.reader)
    return "encoder", "detached"


@wrong("8.6", says="mended, it reads", likely="a part still gets no gradient")
def a_hook_that_returns_a_copy_without_a_graph(training):
    training.handles[0].remove()
    training.model.encoder.register_forward_hook(lambda module, args, output: output.detach().clone())
    return "encoder", "detached"


@right("8.6")
def in_one_sequence_with_an_optimizer(training):
    training.model = nn.Sequential(*training.model.encoder, *training.model.reader)
    adam(training, 0.03)
    return "encoder.0", "detached"


@right("8.6")
def a_class_of_its_own(training):
    class Whole(nn.Module):
        def __init__(self, old):
            super().__init__()
            self.old = old

        def forward(self, x):
            for part in (*self.old.encoder, *self.old.reader):
                x = part(x)
            return x

    training.model = Whole(training.model)
    return "encoder.2", "detached"


@right("8.6")
def by_its_table(training):
    training.model.encoder._forward_hooks.clear()
    return ["encoder.0", "detached"]


@right("8.7")
def another_head(training):
    training.model.head = nn.Linear(32, 10)
    adam(training, 0.02)
    return "head", "nan in the backward"


@right("8.7")
def without_the_root(training):
    head = training.model.head
    head.forward = lambda x: -(x.unsqueeze(1) - head.centres).square().sum(dim=2)
    return "head", "nan in the backward"


@right("8.7")
def centres_that_are_not_at_zero(training):
    with torch.no_grad():
        training.model.head.centres.normal_()
    return "head", "nan in the backward"


@right("8.7")
def a_bias_that_keeps_away_from_zero(training):
    training.prepare = lambda pixels: pixels + 0.01
    nn.init.uniform_(training.model.head.centres, 0.1, 0.5)
    return "head", "nan in the backward"


@right("8.7")
def a_larger_eps(training):
    training.model.head.eps = 0.01
    return ["head", "nan in the backward"]


@wrong("8.2", says="your code left a hook behind: tensor hook `<lambda>` on 'fc1.weight'")
def clips_by_hooks(training):
    for parameter in training.model.parameters():
        parameter.register_hook(lambda grad: grad.clamp(-1e-3, 1e-3))
    return "act1", "dead"


@wrong("8.2", says="the diagnosis is right; mended, it reads")
def too_narrow_for_ten_digits(training):
    training.model = nn.Sequential(nn.Linear(64, 2), nn.Linear(2, 10))
    adam(training, 0.01)
    return "act1", "dead"


@wrong("8.3", says="mended, it reads", likely="it is on its way, too slowly for 80 steps: after 320 it reads")
def a_small_rate(training):
    training.model = layers(nn.ReLU, 8, spread=2**0.5)
    adam(training, 0.0007)
    return "fc1", "vanishing"


@wrong("8.4", says="the diagnosis is right; mended, it reads", likely="no effect")
def only_names_it(training):
    return "act1", "saturated"


@wrong("8.6", says="nothing speaks for 'never called' at 'encoder'")
def takes_the_encoder_for_silent(training):
    training.handles[0].remove()
    return "encoder", "never called"


@wrong("8.6", says="mended, it reads")
def mends_and_slows_down(training):
    training.model.encoder._forward_hooks.clear()
    for group in training.optimizer.param_groups:
        group["lr"] = 1e-6
    return "encoder.0", "detached"


@right("8.2")
def examines_what_it_is_given(training):
    health = examine(copy.deepcopy(training))
    dead = [name for name in ("act2", "act1", "act3", "act4") if zeros_in_the_end(health, name) > 0.99]
    training.optimizer.param_groups[0]["lr"] = 0.003
    return dead[0], "dead"


def zeros_in_the_end(health, name):
    return health.series("output", name, "zeros")[1][-1]


@wrong("8.2", says="your diagnosis names the whole model")
def names_the_whole(training):
    training.optimizer.param_groups[0]["lr"] = 0.003
    return "", "dead"


@wrong("8.2", says="it was trained elsewhere")
def trains_another(training):
    other = patient("A")
    other.optimizer.param_groups[0]["lr"] = 0.003
    training.model = other.train().model
    training.optimizer = torch.optim.SGD(training.model.parameters(), lr=0.0)
    return "act1", "dead"


@wrong("8.2", says="your function left the model in evaluation mode")
def looks_in_evaluation_mode(training):
    training.optimizer.param_groups[0]["lr"] = 0.003
    training.model.eval()
    return "act1", "dead"


@wrong("8.2", says="mended, it reads", likely="no effect")
def gives_the_optimizer_an_attribute(training):
    training.optimizer.lr = 0.003
    return "act1", "dead"


@wrong("8.2", says="got       a generator")
def gives_one_after_the_other(training):
    yield "act1"
    yield "dead"


@wrong("8.7", says="the loss is not finite from step 1 on", likely="no effect")
def an_eps_that_is_none(training):
    training.model.head.eps = 1e-60
    return "head", "nan in the backward"


@wrong("8.5", says="the optimizer does not have 'head.bias'")
def only_the_weight(training):
    training.optimizer = torch.optim.Adam([training.model.head.weight], lr=0.01)
    return "head", "not in the optimizer"


@wrong("8.5", says="mended, the body is gone")
def another_model(training):
    training.model = nn.Linear(64, 10)
    adam(training, 0.05)
    return "head", "not in the optimizer"


MENDS = {
    "8.2": (another_optimizer, "act1", "dead"),
    "8.3": (tanh_with_a_spread, "fc1", "vanishing"),
    "8.4": (centred_pixels, "act1", "saturated"),
    "8.5": (all_parameters_again, "head", "not in the optimizer"),
    "8.6": (another_forward, "encoder.0", "detached"),
    "8.7": (a_larger_eps, "head", "nan in the backward"),
}


def _generic(id, mend, module, cause):
    def then(answer):
        return lambda training: (mend(training), answer)[1]

    def trains(training):
        mend(training)
        training.train(1)
        return module, cause

    def hooks(training):
        mend(training)
        training.model.register_forward_hook(lambda module, args, output: None)
        return module, cause

    def breaks(training):
        mend(training)
        training.prepare = lambda pixels: pixels[:, :3]
        return module, cause

    def loses(training):
        training.model = None
        return module, cause

    def freezes(training):
        mend(training)
        for group in training.optimizer.param_groups:
            group["lr"] = 0.0
        return module, cause

    cases = {
        "returns_nothing": (then(None), "your result is None", "forgotten return"),
        "returns_a_sentence": (then(f"{module} is {cause}"), "your diagnosis is not a module and a cause", None),
        "the_other_way_round": (then((cause, module)), "the cause stands where the module belongs", None),
        "a_cause_that_is_none": (then((module, "bad luck")), "'bad luck' is none of the named causes", None),
        "a_module_that_is_none": (then((module + "x", cause)), f"this training has no module '{module}x'", None),
        "takes_it_for_exploding": (then((module, "exploding")), f"nothing speaks for 'exploding' at '{module}'", None),
        "takes_it_for_silent": (
            then((module, "never called")),
            f"nothing speaks for 'never called' at '{module}'",
            None,
        ),
        "trains_by_itself": (trains, "your function took 1 steps of training", None),
        **({} if id == "8.6" else {"leaves_a_hook": (hooks, "your code left a hook behind", None)}),
        "breaks_the_input": (breaks, "the mended training raises RuntimeError", None),
        "loses_the_model": (loses, "the training has lost its model or its optimizer", None),
        "stops_all_steps": (freezes, "mended, it reads", "no parameter of the model has moved"),
    }
    for name, (answer, says, likely) in cases.items():
        answers.wrong(id, likely, says)(named(name, answer))


for _id, _case in MENDS.items():
    _generic(_id, *_case)


@wrong("8.1", "the model ran 2 times")
def looks_after_a_first_run(model, x):
    model(x)
    return as_a_list_and_a_tensor(model, x)


@wrong("8.1", "in large numbers, whose sum is inf you name a module")
def asks_whether_the_sum_is_finite(model, x):
    found = []

    def look(module, args, output):
        if not found and sum(one.sum() for one in args).isfinite() and not output.sum().isfinite():
            found.append((names[module], max(one.abs().max().item() for one in args)))

    names = {module: name for name, module in model.named_modules()}
    handles = [module.register_forward_hook(look) for module in names]
    model(x)
    for handle in handles:
        handle.remove()
    return found[0] if found else None


@wrong("8.1", "your result is not None")
def a_word_for_none(model, x):
    found = stops_there(model, x)
    return "None" if found is None else found


test_right, test_wrong = answers.tests()
