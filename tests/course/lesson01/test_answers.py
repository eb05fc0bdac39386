"""Unusual right answers to lesson 1's exercises, and wrong ones: none is misjudged, and no reason is untrue."""

import contextlib
import functools
import heapq
import itertools
import operator
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from hooklab.course.lesson01 import engine
from tests.course.exercises.answers import Answers

answers = Answers("1.1", "1.2", "1.3", "1.4", "1.5", "1.6")
right, wrong = answers.right, answers.wrong
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True"),
]


# --- 1.1


@right("1.1")
def keys_of_a_dictionary(named):
    return {name: t for name, t in named.items() if t.is_leaf and t.requires_grad}.keys()


@right("1.1")
def frozen(named):
    return frozenset(name for name in named if named[name].requires_grad and named[name].grad_fn is None)


@right("1.1")
def by_subtraction(named):
    constants = {name for name, t in named.items() if not t.requires_grad}
    return set(named) - constants - {name for name, t in named.items() if t.grad_fn}


@right("1.1")
def by_filter(named):
    return set(filter(lambda name: named[name].is_leaf & named[name].requires_grad, named))


@right("1.1")
def from_an_array(named):
    mask = np.array([t.is_leaf and t.requires_grad for t in named.values()], dtype=bool)
    return set(itertools.compress(named, mask))


@right("1.1")
class Callable:
    def __new__(cls, named):
        return {
            n
            for n, t in named.items()
            if all(map(operator.attrgetter("is_leaf", "requires_grad"), [t])) and t.is_leaf and t.requires_grad
        }


@right("1.1")
def by_type_of_the_node(named):
    found = set()
    for name, t in named.items():
        if t.requires_grad:
            with torch.enable_grad():
                node = t.view_as(t).grad_fn.next_functions[0][0]
            if type(node).__name__ == "AccumulateGrad":
                found.add(name)
    return found


@wrong("1.1", says="expected  ['b', 'w'] of ['b', 'copy', 'data', 'hidden', 'w']")
def all_names(named):
    return set(named)


@wrong("1.1", "requires_grad is not enough", "got       ['b', 'hidden', 'w']")
def all_that_require_grad(named):
    return {name for name, t in named.items() if t.requires_grad}


@right("1.1")
def a_list(named):
    return [name for name, t in named.items() if t.is_leaf and t.requires_grad]


@right("1.1")
def a_dictionary(named):
    return {name: t for name, t in named.items() if t.is_leaf and t.requires_grad}


@wrong("1.1", says="the answer holds tensors, not their names")
def a_set_of_tensors(named):
    return {t for t in named.values() if t.is_leaf and t.requires_grad}


@wrong("1.1", says="the answer holds other things than names")
def pairs_of_name_and_tensor(named):
    return [(name, t) for name, t in named.items() if t.is_leaf and t.requires_grad]


@wrong("1.1", says="the names in your set are not the right ones")
def that_have_one_already(named):
    return {name for name, t in named.items() if t.is_leaf and t.grad is not None}


@wrong("1.1", says="the names in your set are not the right ones")
def parameters_alone(named):
    return {name for name, t in named.items() if isinstance(t, nn.Parameter)}


@wrong("1.1", says="for other tensors, your set is not the right one")
def single_precision_alone(named):
    return {n for n, t in named.items() if t.is_leaf and t.requires_grad and t.dtype == torch.float32}


@wrong("1.1", says="but 'left'\n    got       ['double', 'empty', 'right']")
def not_the_scalars(named):
    return {n for n, t in named.items() if t.is_leaf and t.requires_grad and t.dim() > 0}


@wrong("1.1", says="the names in your set are not the right ones")
def not_the_zeros(named):
    return {n for n, t in named.items() if t.is_leaf and t.requires_grad and t.any()}


@wrong("1.1", says="a tensor that it was given requires grad now")
def makes_them_all_require_grad(named):
    return {n for n, t in named.items() if t.is_leaf and t.requires_grad_() is t}


@wrong("1.1", says="your code wrote into .grad")
def runs_backward_and_looks(named):
    sum(t.sum() for t in named.values()).backward(retain_graph=True)
    return {n for n, t in named.items() if t.is_leaf and t.grad is not None}


@wrong("1.1", says="the check could not use what empties_the_dictionary gave it")
def empties_the_dictionary(named):
    found = set()
    while named:
        name, t = named.popitem()
        if t.is_leaf and t.requires_grad:
            found.add(name)
    return found


@wrong("1.1", says="the answer is not a set of names")
def joined_by_commas(named):
    return ", ".join(n for n, t in named.items() if t.is_leaf and t.requires_grad)


@wrong("1.1", says="the names in your set are not the right ones")
def stops_at_the_first_that_fails(named):
    return set(itertools.takewhile(lambda n: named[n].is_leaf and named[n].requires_grad, named))


seen_once = []


@wrong("1.1", "the names of the first dictionary")
def always_the_first_answer(named):
    seen_once.append({n for n, t in named.items() if t.is_leaf and t.requires_grad})
    return seen_once[0]


@wrong("1.1", says="the names in your set are not the right ones")
def leaves_gradient_mode_off_and_forgets_one(named):
    torch.set_grad_enabled(False)
    return {n for n, t in named.items() if t.is_leaf and t.requires_grad} - {min(named)}


# --- 1.2


class Number:
    """What the card gives."""

    def __init__(self, data, made_from=()):
        self.data = data
        self.made_from = made_from
        self.grad = None
        self.hooks = []

    def __add__(self, other):
        return type(self)(self.data + other.data, [(self, 1.0), (other, 1.0)])

    def __mul__(self, other):
        return type(self)(self.data * other.data, [(self, other.data), (other, self.data)])

    def backward(self):
        arriving = {self: 1.0}
        for value in engine.backward_order(self):
            value.arrive(arriving[value], arriving)


def arriving_by(arrive):
    """A class with this method `arrive`."""
    return type(arrive.__name__, (Number,), {"arrive": arrive, "__doc__": "A number."})


def after_hooks(hooks, gradient):
    for hook in hooks:
        changed = hook(gradient)
        gradient = gradient if changed is None else changed
    return gradient


def pass_on(made_from, gradient, arriving):
    for value, derivative in made_from:
        arriving[value] = arriving.get(value, 0.0) + gradient * derivative


@right("1.2")
@arriving_by
def by_reduce(self, gradient, arriving):
    def apply(so_far, hook):
        changed = hook(so_far)
        return so_far if changed is None else changed

    gradient = functools.reduce(apply, self.hooks, gradient)
    if self.made_from:
        for value, derivative in self.made_from:
            arriving.setdefault(value, 0.0)
            arriving[value] += gradient * derivative
    else:
        self.grad = (self.grad or 0.0) + gradient


@right("1.2")
@arriving_by
def with_exceptions(self, gradient, arriving):
    for hook in list(self.hooks):
        match hook(gradient):
            case None:
                pass
            case changed:
                gradient = changed
    if len(self.made_from) == 0:
        try:
            self.grad += gradient
        except TypeError:
            self.grad = gradient
        return
    for value, derivative in self.made_from:
        try:
            arriving[value] += derivative * gradient
        except KeyError:
            arriving[value] = derivative * gradient


@right("1.2")
@arriving_by
def pieces_first(self, gradient, arriving):
    gradient = after_hooks(tuple(self.hooks), gradient)
    pieces = [(value, gradient * derivative) for value, derivative in self.made_from]
    for value, piece in pieces:
        arriving.update({value: piece + arriving[value] if value in arriving else piece})
    if not pieces:
        self.grad = sum(one for one in (self.grad, gradient) if one is not None)


@right("1.2")
@arriving_by
def with_an_index(self, gradient, arriving):
    number = 0
    while number < len(self.hooks):
        changed = self.hooks[number](gradient)
        if changed is not None:
            gradient = changed
        number += 1
    if self.made_from in ((), []):
        self.grad = gradient if self.grad is None else gradient + self.grad
    for parent in self.made_from:
        arriving[parent[0]] = gradient * parent[1] + arriving.get(parent[0], 0)


@right("1.2")
class Other:
    """Written from nothing, with names and operators of its own."""

    __hash__ = object.__hash__

    def __init__(self, data, made_from=()):
        self.data, self.made_from, self.grad, self.hooks = data, list(made_from), None, []

    def __add__(self, other):
        return Other(self.data + other.data, ((self, 1), (other, 1)))

    def __mul__(self, other):
        return Other(self.data * other.data, ((self, other.data), (other, self.data)))

    def backward(self):
        arriving = {self: 1.0}
        for value in engine.backward_order(self):
            value.arrive(arriving[value], arriving)

    def arrive(self, gradient, arriving):
        gradient = after_hooks(self.hooks, gradient)
        if not self.made_from:
            self.grad = gradient + (0 if self.grad is None else self.grad)
        pass_on(self.made_from, gradient, arriving)


@wrong("1.2", "0.0 is a gradient and not None")
@arriving_by
def zero_is_not_none(self, gradient, arriving):
    for hook in self.hooks:
        gradient = hook(gradient) or gradient
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    pass_on(self.made_from, gradient, arriving)


@wrong("1.2", "None taken for a gradient", says="backward raised TypeError: unsupported operand type(s) for *:")
@arriving_by
def takes_none_for_a_gradient(self, gradient, arriving):
    for hook in self.hooks:
        gradient = hook(gradient)
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    pass_on(self.made_from, gradient, arriving)


@wrong("1.2", says="backward raised TypeError")
@arriving_by
def hooks_get_the_value_too(self, gradient, arriving):
    gradient = after_hooks([lambda gradient, hook=hook: hook(gradient, self) for hook in self.hooks], gradient)
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    pass_on(self.made_from, gradient, arriving)


@wrong("1.2", says="what a hook on y = 3 sees")
@arriving_by
def hooks_get_the_value_alone(self, gradient, arriving):
    gradient = after_hooks([lambda gradient, hook=hook: hook(self.data) for hook in self.hooks], gradient)
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    pass_on(self.made_from, gradient, arriving)


@wrong("1.2", says="what a hook returns is lost")
@arriving_by
def hooks_only_look(self, gradient, arriving):
    for hook in self.hooks:
        hook(gradient)
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    pass_on(self.made_from, gradient, arriving)


@wrong("1.2", "each hook gets what the one before it returned")
@arriving_by
def each_hook_gets_the_first_gradient(self, gradient, arriving):
    first = gradient
    for hook in self.hooks:
        changed = hook(first)
        if changed is not None:
            gradient = changed
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    pass_on(self.made_from, gradient, arriving)


@wrong("1.2", "only one of the two hooks ran")
@arriving_by
def only_the_first_hook(self, gradient, arriving):
    gradient = after_hooks(self.hooks[:1], gradient)
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    pass_on(self.made_from, gradient, arriving)


@wrong("1.2", "the other way round")
@arriving_by
def hooks_in_reverse(self, gradient, arriving):
    gradient = after_hooks(self.hooks[::-1], gradient)
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    pass_on(self.made_from, gradient, arriving)


@wrong("1.2", says="a hook on y never ran")
@arriving_by
def hooks_of_leaves_alone(self, gradient, arriving):
    if not self.made_from:
        gradient = after_hooks(self.hooks, gradient)
        self.grad = (self.grad or 0.0) + gradient
    pass_on(self.made_from, gradient, arriving)


@wrong("1.2", says="the order in which hooks run is another one")
@arriving_by
def hooks_of_the_others_alone(self, gradient, arriving):
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
        return
    pass_on(self.made_from, after_hooks(self.hooks, gradient), arriving)


@wrong("1.2", says="what a hook returns is lost")
@arriving_by
def hooks_at_the_end(self, gradient, arriving):
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    pass_on(self.made_from, gradient, arriving)
    after_hooks(self.hooks, gradient)


@wrong("1.2", "a leaf adds to the gradient it already has")
@arriving_by
def a_leaf_forgets(self, gradient, arriving):
    gradient = after_hooks(self.hooks, gradient)
    if not self.made_from:
        self.grad = gradient
    pass_on(self.made_from, gradient, arriving)


@wrong("1.2", says="y, y·y, z kept a gradient, and were computed")
@arriving_by
def everybody_keeps_it(self, gradient, arriving):
    gradient = after_hooks(self.hooks, gradient)
    self.grad = (self.grad or 0.0) + gradient
    pass_on(self.made_from, gradient, arriving)


@wrong("1.2", says="the leaf x kept no gradient")
@arriving_by
def nobody_keeps_it(self, gradient, arriving):
    gradient = after_hooks(self.hooks, gradient)
    pass_on(self.made_from, gradient, arriving)


@wrong("1.2", "y is used twice in y·y, and one of its two pieces is lost")
@arriving_by
def the_last_piece_wins(self, gradient, arriving):
    gradient = after_hooks(self.hooks, gradient)
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    for value, derivative in self.made_from:
        arriving[value] = gradient * derivative


@wrong("1.2", "y is used twice in y·y, and one of its two pieces is lost")
@arriving_by
def the_first_piece_wins(self, gradient, arriving):
    gradient = after_hooks(self.hooks, gradient)
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    for value, derivative in self.made_from:
        arriving.setdefault(value, gradient * derivative)


@wrong("1.2", "nothing there yet", says="backward raised KeyError:")
@arriving_by
def no_entry_yet(self, gradient, arriving):
    gradient = after_hooks(self.hooks, gradient)
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    for value, derivative in self.made_from:
        arriving[value] += gradient * derivative


@wrong("1.2", "y is used twice in y·y, and one of its two pieces is lost")
@arriving_by
def a_dictionary_of_what_it_was_made_from(self, gradient, arriving):
    gradient = after_hooks(self.hooks, gradient)
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    pass_on(dict(self.made_from).items(), gradient, arriving)


@wrong("1.2", says="x.grad, for z = 0.5·y·y with y = x + 2 = 3, is another one")
@arriving_by
def adds_the_derivative(self, gradient, arriving):
    gradient = after_hooks(self.hooks, gradient)
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    for value, derivative in self.made_from:
        arriving[value] = arriving.get(value, 0.0) + gradient + derivative


@wrong("1.2", "the derivative alone")
@arriving_by
def forgets_the_gradient(self, gradient, arriving):
    gradient = after_hooks(self.hooks, gradient)
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    pass_on(self.made_from, 1.0, arriving)


@wrong("1.2", says="what a hook returns is lost")
@arriving_by
def passes_on_what_came_before_the_hooks(self, gradient, arriving):
    if not self.made_from:
        self.grad = (self.grad or 0.0) + after_hooks(self.hooks, gradient)
        return
    pass_on(self.made_from, gradient, arriving)
    after_hooks(self.hooks, gradient)


@wrong("1.2", says="what a hook on x sees in two backward passes is another one")
@arriving_by
def hooks_run_once(self, gradient, arriving):
    gradient = after_hooks(self.hooks, gradient)
    self.hooks = []
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    pass_on(self.made_from, gradient, arriving)


@wrong("1.2", says="the hook on y ran more than once in one backward")
@arriving_by
def hooks_for_each_piece(self, gradient, arriving):
    if not self.made_from:
        self.grad = (self.grad or 0.0) + after_hooks(self.hooks, gradient)
    for value, derivative in self.made_from:
        arriving[value] = arriving.get(value, 0.0) + after_hooks(self.hooks, gradient) * derivative


@wrong("1.2", says="x.grad, for z = 0.5·y·y with y = x + 2 = 3, is another one")
@arriving_by
def calls_the_others_itself(self, gradient, arriving):
    gradient = after_hooks(self.hooks, gradient)
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    for value, derivative in self.made_from:
        arriving[value] = arriving.get(value, 0.0) + gradient * derivative
        value.arrive(gradient * derivative, arriving)


@wrong("1.2", says="x.grad, where two negative pieces come to y, is another one")
@arriving_by
def only_positive_ones(self, gradient, arriving):
    gradient = after_hooks(self.hooks, gradient)
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    for value, derivative in self.made_from:
        arriving[value] = max(arriving.get(value, 0.0), 0.0) + gradient * derivative


@wrong("1.2", says="no gradient came to a value")
@arriving_by
def catches_what_a_hook_raises(self, gradient, arriving):
    for hook in self.hooks:
        try:
            gradient = hook(gradient) + 0.0
        except Exception:
            continue
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    pass_on(self.made_from[:1], gradient, arriving)


@wrong("1.2", "a piece of 0.0 left out")
@arriving_by
def leaves_pieces_of_zero_out(self, gradient, arriving):
    gradient = after_hooks(self.hooks, gradient)
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    pass_on([(value, derivative) for value, derivative in self.made_from if derivative], gradient, arriving)


@wrong("1.2", "swallowed")
@arriving_by
def goes_on_when_a_hook_raises(self, gradient, arriving):
    with contextlib.suppress(Exception):
        gradient = after_hooks(self.hooks, gradient)
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    pass_on(self.made_from, gradient, arriving)


@wrong("1.2", says="what a hook returns is lost")
@arriving_by
def takes_only_floats_from_a_hook(self, gradient, arriving):
    for hook in self.hooks:
        changed = hook(gradient)
        gradient = changed if isinstance(changed, float) else gradient
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    pass_on(self.made_from, gradient, arriving)


@wrong("1.2", says="no longer knows what it was made from")
@arriving_by
def lets_go_of_the_graph(self, gradient, arriving):
    gradient = after_hooks(self.hooks, gradient)
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    pass_on(self.made_from, gradient, arriving)
    self.made_from = ()


@right("1.2")
def a_function_that_makes_values(data, made_from=()):
    return by_reduce(data, made_from)


@wrong("1.2", says="has no attribute 'arrive'")
class HasNoArrive(Number):
    """The method has another name."""


@wrong("1.2", "arrive called by arrive", says="no gradient came to a value")
@arriving_by
def goes_down_by_itself(self, gradient, arriving):
    gradient = after_hooks(self.hooks, gradient)
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    for value, derivative in self.made_from:
        value.arrive(gradient * derivative, arriving)


@wrong("1.2", "kept before the hooks ran", says="when a hook on the leaf x doubles")
@arriving_by
def keeps_first(self, gradient, arriving):
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    pass_on(self.made_from, after_hooks(self.hooks, gradient), arriving)


@wrong("1.2", says="when a hook on the leaf x doubles")
@arriving_by
def hooks_of_leaves_only_look(self, gradient, arriving):
    if self.made_from:
        gradient = after_hooks(self.hooks, gradient)
    else:
        after_hooks(self.hooks, gradient)
        self.grad = (self.grad or 0.0) + gradient
    pass_on(self.made_from, gradient, arriving)


@wrong("1.2", says="x.grad, where a piece of 0.0 comes to y, is another one")
@arriving_by
def takes_zero_for_the_start(self, gradient, arriving):
    gradient = after_hooks(self.hooks, gradient or 1.0)
    if not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    pass_on(self.made_from, gradient, arriving)


@wrong("1.2", says="z kept a gradient, and was computed")
@arriving_by
def keeps_it_in_the_last_value_too(self, gradient, arriving):
    gradient = after_hooks(self.hooks, gradient)
    if not self.made_from or len(arriving) == 1:
        self.grad = (self.grad or 0.0) + gradient
    pass_on(self.made_from, gradient, arriving)


@wrong("1.2", says="backward raised AttributeError: 'misspells_the_pairs' object has no attribute 'made_of'")
@arriving_by
def misspells_the_pairs(self, gradient, arriving):
    pass_on(self.made_of, gradient, arriving)


@wrong("1.2", says="backward raised KeyError")
@arriving_by
def takes_their_ids_for_keys(self, gradient, arriving):
    for value, derivative in self.made_from:
        arriving[id(value)] += gradient * derivative


@right("1.2")
class WithoutArrive(Number):
    """The whole backward in one method."""

    def backward(self):
        arriving = {self: 1.0}
        for value in engine.backward_order(self):
            gradient = after_hooks(value.hooks, arriving[value])
            if not value.made_from:
                value.grad = gradient + (value.grad or 0.0)
            pass_on(value.made_from, gradient, arriving)


@wrong("1.2", says="x kept no gradient once a hook looked on")
@arriving_by
def keeps_what_no_hook_has_seen(self, gradient, arriving):
    if self.hooks:
        gradient = after_hooks(self.hooks, gradient)
    elif not self.made_from:
        self.grad = (self.grad or 0.0) + gradient
    pass_on(self.made_from, gradient, arriving)


# --- 1.3


@right("1.3")
def splits_the_graph(w, x):
    hidden = w * x
    leaf = hidden.detach().requires_grad_()
    (leaf**2).sum().backward()
    hidden.backward(leaf.grad)
    return leaf.grad


@right("1.3")
def with_a_hook(w, x):
    kept = []
    hidden = w * x
    hidden.register_hook(kept.append)
    torch.sum(hidden * hidden).backward()
    return kept.pop()


@right("1.3")
def asks_and_sends(w, x):
    hidden = torch.mul(w, x)
    loss = hidden.square().sum()
    (gradient,) = torch.autograd.grad(loss, hidden, retain_graph=True)
    loss.backward()
    return gradient


@right("1.3")
def retains_after_the_loss(w, x):
    hidden = w * x
    loss = (hidden**2).sum()
    hidden.retain_grad()
    torch.autograd.backward([loss], retain_graph=True)
    return hidden.grad.clone()


@right("1.3")
def calculus(w, x):
    hidden = w * x
    (hidden**2).sum().backward()
    return 2 * hidden.detach()


@right("1.3")
def pushes_the_gradient_itself(w, x):
    hidden = w * x
    gradient = 2 * hidden.detach()
    hidden.backward(gradient)
    return gradient


@wrong("1.3", says="the gradient of hidden came back, and w got none")
def only_asks(w, x):
    hidden = w * x
    return torch.autograd.grad((hidden**2).sum(), hidden)[0]


@wrong("1.3", "the leaf's")
def the_gradient_of_w(w, x):
    hidden = w * x
    (hidden**2).sum().backward()
    return w.grad


@wrong("1.3", "value instead of gradient")
def hidden_itself(w, x):
    hidden = w * x
    hidden.retain_grad()
    (hidden**2).sum().backward()
    return hidden


@wrong("1.3", says="expected  w.grad = [118, 104, 92], the old one and one gradient")
def backward_twice(w, x):
    hidden = w * x
    hidden.retain_grad()
    loss = (hidden**2).sum()
    loss.backward(retain_graph=True)
    hidden.grad = None
    loss.backward()
    return hidden.grad


@wrong("1.3", says="w.grad is not what one backward() makes it")
def clears_the_old_gradient(w, x):
    w.grad = None
    hidden = w * x
    hidden.retain_grad()
    (hidden**2).sum().backward()
    return hidden.grad


@wrong("1.3", says="w.grad is not what one backward() makes it")
def zeroes_the_old_gradient(w, x):
    hidden = w * x
    hidden.retain_grad()
    if w.grad is not None:
        w.grad.zero_()
    (hidden**2).sum().backward()
    return hidden.grad


@wrong("1.3", says="the gradient of hidden came back, and w got none")
def detaches_first(w, x):
    hidden = (w * x).detach().requires_grad_()
    (hidden**2).sum().backward()
    return hidden.grad


@wrong("1.3", says="that is not the gradient of hidden")
def a_mean(w, x):
    hidden = w * x
    hidden.retain_grad()
    (hidden**2).mean().backward()
    return hidden.grad


@wrong("1.3", says="that is not the gradient of hidden")
def a_sum_of_absolute_values(w, x):
    hidden = w * x
    hidden.retain_grad()
    hidden.abs().sum().backward()
    return hidden.grad


@wrong("1.3", says="what your function returned has another shape")
def one_number(w, x):
    hidden = w * x
    hidden.retain_grad()
    (hidden**2).sum().backward()
    return hidden.grad.sum()


@wrong("1.3", says="what your function returned is not a tensor")
def in_a_list(w, x):
    kept = []
    hidden = w * x
    hidden.register_hook(kept.append)
    (hidden**2).sum().backward()
    return kept


@wrong("1.3", "in-place change")
def takes_a_step_as_well(w, x):
    hidden = w * x
    hidden.retain_grad()
    (hidden**2).sum().backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
    return hidden.grad


@wrong("1.3", says="w.grad is not what one backward() makes it")
def writes_w_grad_itself(w, x):
    hidden = w * x
    gradient, w.grad = torch.autograd.grad((hidden**2).sum(), [hidden, w])
    return gradient


@wrong("1.3", says="w.grad is not what one backward() makes it")
def halves_on_the_way(w, x):
    kept = []
    hidden = w * x

    def hook(grad):
        kept.append(grad)
        return grad / 2

    hidden.register_hook(hook)
    (hidden**2).sum().backward()
    return kept[0]


@wrong("1.3", says="that is not the gradient of hidden")
def absolute_values(w, x):
    hidden = w * x
    hidden.retain_grad()
    (hidden**2).sum().backward()
    return hidden.grad.abs()


first_gradient = []


@wrong("1.3", says="what your function returned has another shape")
def the_gradient_of_the_first_call(w, x):
    hidden = w * x
    hidden.register_hook(first_gradient.append)
    (hidden**2).sum().backward()
    return first_gradient[0]


@wrong("1.3", says="a tensor that it was given requires no grad now")
def w_is_frozen(w, x):
    w.requires_grad_(False)
    hidden = (w * x).requires_grad_()
    (hidden**2).sum().backward()
    return hidden.grad


@wrong("1.3", says="the gradient of hidden came back, and w got none")
def adds_to_a_copy(w, x):
    copy = w.clone().detach().requires_grad_()
    hidden = copy * x
    hidden.retain_grad()
    (hidden**2).sum().backward()
    return hidden.grad


@wrong("1.3", says="what your function returned has another shape")
def flattened(w, x):
    hidden = w * x
    hidden.retain_grad()
    (hidden**2).sum().backward()
    return hidden.grad.flatten()[:1]


# --- 1.4


@right("1.4")
def one_by_one(z, named):
    pairs = []
    for name, t in named.items():
        (g,) = torch.autograd.grad(z, t, retain_graph=True, allow_unused=True)
        if g is not None:
            pairs.append((g.norm(), name))
    return [name for _, name in sorted(pairs, key=lambda pair: -pair[0])]


@right("1.4")
def by_heap(z, named):
    found = dict(zip(named, torch.autograd.grad([z], tuple(named.values()), allow_unused=True), strict=True))
    used = {name: g for name, g in found.items() if g is not None}
    return heapq.nlargest(len(used), used, key=lambda name: torch.linalg.vector_norm(used[name]).item())


@right("1.4")
def by_argsort(z, named):
    grads = torch.autograd.grad(z.sum(), list(named.values()), allow_unused=True, create_graph=True)
    names = [name for name, g in zip(named, grads, strict=True) if g is not None]
    if not names:
        return []
    norms = torch.stack([g.detach().norm() for g in grads if g is not None])
    return [names[i] for i in norms.argsort(descending=True)]


@right("1.4")
def by_squares(z, named):
    grads = torch.autograd.grad(z, list(named.values()), torch.ones_like(z), allow_unused=True)
    squares = {n: (g.double() ** 2).sum().item() for n, g in zip(named, grads, strict=True) if g is not None}
    return sorted(squares, key=squares.__getitem__)[::-1]


@right("1.4")
def by_numpy(z, named):
    grads = torch.autograd.grad(z, list(named.values()), allow_unused=True)
    lengths = [(np.linalg.norm(g.numpy().ravel()), n) for g, n in zip(grads, named, strict=True) if g is not None]
    return [n for _, n in sorted(lengths, reverse=True)]


def norms_of(z, named):
    grads = torch.autograd.grad(z, list(named.values()), allow_unused=True, retain_graph=True)
    return {n: g.norm().item() for n, g in zip(named, grads, strict=True) if g is not None}


@wrong("1.4", "backward() fills .grad all the way down; torch.autograd.grad")
def calls_backward(z, named):
    z.backward()
    found = {n: t.grad.norm().item() for n, t in named.items() if t.grad is not None}
    return sorted(found, key=found.get, reverse=True)


@wrong("1.4", says="a came with an old .grad, and it is gone")
def backward_and_none(z, named):
    for t in named.values():
        t.retain_grad()
        t.grad = None
    z.backward()
    found = {n: t.grad.norm().item() for n, t in named.items() if t.grad is not None}
    for t in named.values():
        t.grad = None
    return sorted(found, key=found.get, reverse=True)


@wrong("1.4", "backward() fills .grad all the way down; torch.autograd.grad")
def puts_back_those_of_the_dictionary(z, named):
    old = {n: t.grad for n, t in named.items()}
    for t in named.values():
        t.grad = None
        t.retain_grad()
    z.backward()
    found = {n: t.grad.norm().item() for n, t in named.items() if t.grad is not None}
    for n, t in named.items():
        t.grad = old[n]
    return sorted(found, key=found.get, reverse=True)


@wrong("1.4", "backward() fills .grad all the way down; torch.autograd.grad")
def keeps_the_object_and_not_the_numbers(z, named):
    old = {n: t.grad for n, t in named.items()}
    found = norms_of(z, named)
    z.backward()
    for n, t in named.items():
        t.grad = old[n]
    return sorted(found, key=found.get, reverse=True)


@wrong("1.4", "sorted() counts up")
def smallest_first(z, named):
    found = norms_of(z, named)
    return sorted(found, key=found.get)


@wrong("1.4", says="the order is another one")
def in_the_order_of_the_dictionary(z, named):
    return list(norms_of(z, named))


@wrong("1.4", says="the order is another one")
def in_the_order_of_the_alphabet(z, named):
    return sorted(norms_of(z, named))


@wrong("1.4", "the sum, where numbers of both signs cancel")
def by_the_sum(z, named):
    grads = torch.autograd.grad(z, list(named.values()), allow_unused=True)
    found = {n: g.sum().item() for n, g in zip(named, grads, strict=True) if g is not None}
    return sorted(found, key=found.get, reverse=True)


@wrong("1.4", says="the order is another one")
def by_the_largest_element(z, named):
    grads = torch.autograd.grad(z, list(named.values()), allow_unused=True)
    found = {n: g.max().item() for n, g in zip(named, grads, strict=True) if g is not None}
    return sorted(found, key=found.get, reverse=True)


@wrong("1.4", says="the order is another one")
def by_the_largest_absolute_element(z, named):
    grads = torch.autograd.grad(z, list(named.values()), allow_unused=True)
    found = {n: g.abs().max().item() for n, g in zip(named, grads, strict=True) if g is not None}
    return sorted(found, key=found.get, reverse=True)


@wrong("1.4", "the sum of the sizes")
def by_the_sum_of_absolute_values(z, named):
    grads = torch.autograd.grad(z, list(named.values()), allow_unused=True)
    found = {n: g.abs().sum().item() for n, g in zip(named, grads, strict=True) if g is not None}
    return sorted(found, key=found.get, reverse=True)


@wrong("1.4", says="the order is another one")
def by_the_mean_square(z, named):
    grads = torch.autograd.grad(z, list(named.values()), allow_unused=True)
    found = {n: g.square().mean().item() for n, g in zip(named, grads, strict=True) if g is not None}
    return sorted(found, key=found.get, reverse=True)


@wrong("1.4", says="the order is another one")
def by_the_tensors_themselves(z, named):
    found = norms_of(z, named)
    return sorted(found, key=lambda n: named[n].norm().item(), reverse=True)


@wrong("1.4", "zero is not None")
def unused_ones_as_well(z, named):
    grads = torch.autograd.grad(z, list(named.values()), allow_unused=True, materialize_grads=True)
    found = {n: g.norm().item() for n, g in zip(named, grads, strict=True)}
    return sorted(found, key=found.get, reverse=True)


@wrong("1.4", says="`unused` is in your list")
def as_they_come(z, named):
    return list(named)


@wrong("1.4", says="`unused` is in your list")
def unused_ones_in_front(z, named):
    found = norms_of(z, named)
    return sorted(named, key=lambda n: found.get(n, float("inf")), reverse=True)


@wrong("1.4", says=".grad of inner was written")
def keeps_the_gradients_of_hidden_values(z, named):
    for t in named.values():
        if not t.is_leaf:
            t.retain_grad()
    found = norms_of(z, named)
    return sorted(found, key=found.get, reverse=True)


@wrong("1.4", "zero is not None")
def without_those_of_gradient_zero(z, named):
    found = {n: norm for n, norm in norms_of(z, named).items() if norm > 0}
    return sorted(found, key=found.get, reverse=True)


@wrong("1.4", says="these are not the tensors that z depends on")
def only_leaves(z, named):
    found = norms_of(z, {n: t for n, t in named.items() if t.is_leaf})
    return sorted(found, key=found.get, reverse=True)


@wrong("1.4", says="these are not the tensors that z depends on")
def only_the_strongest(z, named):
    found = norms_of(z, named)
    return [max(found, key=found.get)]


@wrong("1.4", says="holds other things than names")
def pairs(z, named):
    return sorted(norms_of(z, named).items(), key=lambda pair: pair[1], reverse=True)


@wrong("1.4", says="the answer is a set, which has no order")
def a_set_of_names(z, named):
    return set(norms_of(z, named))


@wrong("1.4", says="one_by_one_without_the_graph raised RuntimeError: Trying to backward")
def one_by_one_without_the_graph(z, named):
    found = {}
    for n, t in named.items():
        (g,) = torch.autograd.grad(z, t, allow_unused=True)
        if g is not None:
            found[n] = g.norm().item()
    return sorted(found, key=found.get, reverse=True)


@wrong("1.4", says="unused_is_an_error raised RuntimeError: The differentiated Tensor at")
def unused_is_an_error(z, named):
    grads = torch.autograd.grad(z, list(named.values()))
    found = {n: g.norm().item() for n, g in zip(named, grads, strict=True)}
    return sorted(found, key=found.get, reverse=True)


@wrong("1.4", "not removed")
def leaves_a_hook(z, named):
    for t in named.values():
        t.register_hook(lambda grad: None)
    found = norms_of(z, named)
    return sorted(found, key=found.get, reverse=True)


# --- 1.5


@right("1.5")
def the_last_one_apart(z, times):
    for _ in range(times - 1):
        z.backward(retain_graph=True)
    z.backward()


@right("1.5")
def by_recursion(z, times):
    if times > 1:
        torch.autograd.backward(z, retain_graph=True)
        return by_recursion(z, times - 1)
    return torch.autograd.backward(z)


@right("1.5")
def counting_down(z, times):
    while times:
        times -= 1
        z.backward(torch.ones_like(z), retain_graph=times > 0)


@right("1.5")
def from_a_list_of_flags(z, times):
    for keep in [*[True] * (times - 1), False]:
        z.backward(retain_graph=keep, create_graph=False)


@right("1.5")
def by_a_list(z, times):
    [z.backward(retain_graph=bool(left)) for left in reversed(range(times))]


@right("1.5")
def returns_the_result(z, times):
    for number in range(1, times + 1):
        z.backward(None, number != times)
    return z


@wrong("1.5", says="frees_it_at_once raised RuntimeError: Trying to backward through the")
def frees_it_at_once(z, times):
    for _ in range(times):
        z.backward()


@wrong("1.5", "times · z, or backward(times)")
def one_pass_of_several_times_the_gradient(z, times):
    z.backward(torch.full_like(z, times))


@wrong("1.5", "times · z, or backward(times)")
def several_times_the_result(z, times):
    (z * times).backward()


@wrong("1.5", "off by one")
def one_too_many(z, times):
    for _ in range(times):
        z.backward(retain_graph=True)
    z.backward()


@wrong("1.5", "off by one")
def one_too_few(z, times):
    for number in range(times - 1):
        z.backward(retain_graph=number < times - 2)


@wrong("1.5", says="x.grad is still None")
def only_asks_for_gradients(z, times):
    leaves = []
    nodes = [z.grad_fn]
    while nodes:
        node = nodes.pop()
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        nodes += [parent for parent, _ in node.next_functions if parent]
    for number in range(times):
        torch.autograd.grad(z, leaves, retain_graph=number < times - 1)


@wrong("1.5", "retained to the end")
def never_frees_after_a_single_pass(z, times):
    for number in range(times):
        z.backward(retain_graph=times == 1 or number < times - 1)


@wrong("1.5", "create_graph=True")
def with_a_graph_of_the_gradients(z, times):
    for _ in range(times):
        z.backward(create_graph=True)


@wrong("1.5", says="backward ran 2 times, not 3")
def always_two(z, times):
    for keep in (True, False):
        z.backward(retain_graph=keep)


@wrong("1.5", says="backward ran 3 times, not 1")
def always_three(z, times):
    for keep in (True, True, False):
        z.backward(retain_graph=keep)


@wrong("1.5", says="backward ran 1 time, not 3")
def catches_the_error(z, times):
    for _ in range(times):
        with contextlib.suppress(RuntimeError):
            z.backward()


@wrong("1.5", "retained to the end")
def deletes_the_name(z, times):
    for _ in range(times):
        z.backward(retain_graph=True)
    del z


@wrong("1.5", "times · z, or backward(times)")
def sends_a_sum(z, times):
    sum(z for _ in range(times)).backward()


@wrong("1.5", says="z was cut off from its graph")
def cuts_the_result_off(z, times):
    for _ in range(times):
        z.backward(retain_graph=True)
    z.detach_()


@wrong("1.5", "off by one")
def frees_it_in_a_pass_of_zeros(z, times):
    for _ in range(times):
        z.backward(retain_graph=True)
    z.backward(torch.zeros_like(z))


@wrong("1.5", says="the passes do not add up to the right sum")
def half_of_it_each_time(z, times):
    for number in range(times):
        z.backward(torch.full_like(z, 0.5), retain_graph=number < times - 1)


# --- 1.6


@right("1.6")
def by_autograd_grad(start, lr, steps):
    points = [start.detach().clone()]
    for _ in range(steps):
        x = points[-1].clone().requires_grad_()
        y = x + 2
        (g,) = torch.autograd.grad(0.5 * (y[0] ** 2 + y[1] ** 2), x)
        points.append((x - lr * g).detach())
    return torch.stack(points)


@right("1.6")
def by_an_optimizer(start, lr, steps):
    x = nn.Parameter(start.detach().clone())
    optimizer = torch.optim.SGD([x], lr=lr)
    path = torch.empty(steps + 1, 2, dtype=start.dtype)
    path[0] = x.detach()
    for number in range(steps):
        optimizer.zero_grad()
        (x + 2).square().sum().div(2).backward()
        optimizer.step()
        path[number + 1] = x.detach()
    return path


@right("1.6")
def by_calculus(start, lr, steps):
    x = start.detach()
    rows = [x]
    for _ in range(steps):
        x = x - lr * (x + 2)
        rows.append(x)
    return torch.vstack(rows)


@right("1.6")
def in_one_formula(start, lr, steps):
    powers = (1 - lr) ** torch.arange(steps + 1, dtype=start.dtype)
    return powers[:, None] * (start.detach() + 2) - 2


@right("1.6")
def by_a_function_of_gradients(start, lr, steps):
    gradient = torch.func.grad(lambda x: ((x + 2) ** 2).mean())
    path = itertools.accumulate(range(steps), lambda x, _: x - lr * gradient(x), initial=start.detach().clone())
    return torch.stack(list(path))


@right("1.6")
def with_data(start, lr, steps):
    x = start.detach().clone().requires_grad_(True)
    path = x.data.clone()[None]
    for _ in range(steps):
        torch.mean((x + 2) ** 2).backward()
        x.data -= lr * x.grad
        x.grad.zero_()
        path = torch.cat([path, x.data[None]])
    return path


@right("1.6")
def of_leaves(start, lr, steps):
    path = [start.clone().requires_grad_()]
    for _ in range(steps):
        torch.mean((path[-1] + 2) ** 2).backward()
        path.append((path[-1] - lr * path[-1].grad).detach().requires_grad_())
    return torch.stack(path)


def walk(start, lr, steps, step=None, keep=lambda x: x.detach().clone(), scale=0.5, clear=True):
    """The descent with one thing in it that can be wrong."""
    x = start.detach().clone().requires_grad_()
    path = [keep(x)]
    for number in range(steps):
        (scale * ((x + 2) ** 2).sum()).backward()
        with torch.no_grad():
            x -= (step(number) if step else lr) * x.grad
        if clear:
            x.grad = None
        path.append(keep(x))
    return path


@wrong("1.6", "gradients add up", "row 2 = [-0.3125, -3.125]")
def gradients_add_up(start, lr, steps):
    return torch.stack(walk(start, lr, steps, clear=False))


@wrong("1.6", "in-place change")
def changes_the_start(start, lr, steps):
    x = start.detach()
    path = [x.clone()]
    for _ in range(steps):
        x -= lr * (x + 2)
        path.append(x.clone())
    return torch.stack(path)


@wrong("1.6", "start.requires_grad_() changes the caller's tensor")
def makes_the_start_require_grad(start, lr, steps):
    start.requires_grad_()
    return torch.stack(walk(start, lr, steps))


@wrong("1.6", "start.requires_grad_() changes the caller's tensor")
def walks_with_the_start(start, lr, steps):
    x = start.requires_grad_()
    path = [x.detach().clone()]
    for _ in range(steps):
        torch.mean((x + 2) ** 2).backward()
        with torch.no_grad():
            x -= lr * x.grad
        x.grad = None
        path.append(x.detach().clone())
    return torch.stack(path)


@wrong("1.6", says="the path is not a tensor")
def a_list_of_points(start, lr, steps):
    return walk(start, lr, steps)


@wrong("1.6", "fence-post")
def without_the_start(start, lr, steps):
    return torch.stack(walk(start, lr, steps)[1:])


@wrong("1.6", "fence-post")
def without_the_end(start, lr, steps):
    return torch.stack(walk(start, lr, steps)[:-1])


@wrong("1.6", "same memory", "expected  row 0 = [1, -4]")
def one_memory_for_all(start, lr, steps):
    return torch.stack(walk(start, lr, steps, keep=lambda x: x.detach()))


@wrong("1.6", "sum instead of half the sum")
def without_the_half(start, lr, steps):
    return torch.stack(walk(start, lr, steps, scale=1.0))


@wrong("1.6", "sign")
def uphill(start, lr, steps):
    return torch.stack(walk(start, -lr, steps))


@wrong("1.6", says="the path is another one")
def a_step_size_of_its_own(start, lr, steps):
    return torch.stack(walk(start, 0.1, steps))


@wrong("1.6", says="the path is another one")
def smaller_and_smaller_steps(start, lr, steps):
    return torch.stack(walk(start, lr, steps, step=lambda number: lr / (number + 1)))


@wrong("1.6", says="the path is another one")
def from_the_end_to_the_start(start, lr, steps):
    return torch.stack(walk(start, lr, steps)[::-1])


@wrong("1.6", says="the path has another shape")
def turned_on_its_side(start, lr, steps):
    return torch.stack(walk(start, lr, steps), dim=1)


@wrong("1.6", says="the path has another shape")
def only_the_end(start, lr, steps):
    return walk(start, lr, steps)[-1]


@wrong("1.6", says="the path is another one")
def with_momentum(start, lr, steps):
    x = nn.Parameter(start.detach().clone())
    optimizer = torch.optim.SGD([x], lr=lr, momentum=0.9)
    path = [x.detach().clone()]
    for _ in range(steps):
        optimizer.zero_grad()
        torch.mean((x + 2) ** 2).backward()
        optimizer.step()
        path.append(x.detach().clone())
    return torch.stack(path)


@wrong("1.6", "one step too far")
def of_y(start, lr, steps):
    return torch.stack(walk(start, lr, steps)) + 2


@wrong("1.6", says="the path is another one")
def forgets_the_two(start, lr, steps):
    x = start.detach().clone()
    path = [x]
    for _ in range(steps):
        x = x - lr * x
        path.append(x)
    return torch.stack(path)


@wrong("1.6", says="a_new_tensor_each_time raised TypeError: unsupported operand type(s)")
def a_new_tensor_each_time(start, lr, steps):
    x = start.clone().requires_grad_()
    path = [x.detach().clone()]
    for _ in range(steps):
        torch.mean((x + 2) ** 2).backward()
        x = x - lr * x.grad
        path.append(x.detach().clone())
    return torch.stack(path)


@wrong("1.6", says="the path is another one")
def one_start_for_both(start, lr, steps):
    path = torch.stack(walk(start, lr, steps))
    return path[:, :1].expand(-1, 2)


@wrong("1.6", says="the path is another one")
def the_end_alone(start, lr, steps):
    return torch.full((steps + 1, 2), -2.0)


@wrong("1.6", says="the path is another one")
def rounded(start, lr, steps):
    return torch.stack(walk(start, lr, steps)).round(decimals=1)


@wrong("1.6", says="the path has another shape")
def stops_when_it_is_there(start, lr, steps):
    path = walk(start, lr, steps)
    return torch.stack(
        [point for number, point in enumerate(path) if number == 0 or not torch.equal(point, path[number - 1])]
    )


@wrong("1.6", None, "shape (1, 2)")
def takes_one_step_at_least(start, lr, steps):
    path = [start.clone()]
    for _ in range(max(steps, 1)):
        path.append(path[-1] - lr * (path[-1] + 2))
    return torch.stack(path)


@wrong("1.6", says="with steps = 0, the path is not the start alone")
def writes_its_rows_in_the_loop(start, lr, steps):
    path, x = torch.zeros(steps + 1, 2), start.clone()
    for step in range(steps):
        path[step] = x
        x = x - lr * (x + 2)
        path[step + 1] = x
    return path


@wrong("1.3", "forgotten return; or asked too late")
def keeps_the_gradient_to_itself(w, x):
    hidden = w * x
    hidden.retain_grad()
    (hidden**2).sum().backward()


@wrong("1.5", "create_graph=True", says="x.grad has a graph of its own")
def makes_graphs_of_the_passes(z, times):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(times):
            z.backward(create_graph=number < times - 1)


test_right, test_wrong = answers.tests()
