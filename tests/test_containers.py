"""Unusual outputs and inputs: whatever a model hands about, our blocks neither change it nor break the model."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
from collections import ChainMap, Counter, OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hooklab import ManifoldMixup, capture, edit, leftover_hooks, monitor, run_until, timeline
from hooklab._shared.trees import describe, map_tensors, tensors
from tests.nets import Calls, ModelOutput, Pair
from tests.test_odd_modules import Empty, Equal, Refusing, Unhashable, refuse


class Boxes(list[Any]):
    """A list with a constructor and an attribute of its own."""

    def __init__(self, tag: str, items: list[Any]) -> None:
        super().__init__(items)
        self.tag = tag


class Two(tuple[Any, ...]):
    """A tuple with a constructor and an attribute of its own."""

    tag: str

    def __new__(cls, left: Any, right: Any) -> Two:
        self = super().__new__(cls, (left, right))
        self.tag = "two"
        return self


class Frozen(dict[str, Any]):
    """A dict that cannot be written to."""

    def __setitem__(self, key: str, value: Any) -> None:
        raise TypeError("frozen")


class Attributes(dict[str, Any]):
    """A dict whose items are its attributes."""

    def __init__(self, **items: Any) -> None:
        super().__init__(**items)
        self.__dict__ = self


@dataclasses.dataclass
class Partly:
    logits: Any
    loss: Any = dataclasses.field(init=False)  # never set


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    logits: Any


class Liar(list[Any]):
    """A list that does not let itself be walked, and says that it is a dict."""

    __class__ = dict  # type: ignore[assignment]
    __iter__ = __len__ = __bool__ = __eq__ = __getitem__ = __copy__ = __reduce_ex__ = refuse  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class RefusingTuple(tuple[Any, ...]):
    __iter__ = __len__ = __bool__ = __eq__ = __hash__ = __getitem__ = refuse  # type: ignore[assignment]


class RefusingDict(dict[str, Any]):
    __iter__ = __len__ = __bool__ = __eq__ = __getitem__ = items = keys = refuse  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class RefusingKey:
    def __repr__(self) -> str:
        raise ZeroDivisionError


class RefusingTensor(Tensor):
    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> Any:
        raise ZeroDivisionError


class Undetached(Tensor):
    detach = refuse  # type: ignore[assignment]


class Opaque:
    __iter__ = __len__ = __bool__ = __eq__ = __repr__ = __copy__ = __reduce_ex__ = refuse  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]
    __class__ = property(refuse)  # type: ignore[assignment]


def holding_itself(kind: type) -> Any:
    thing: Any = kind()
    if isinstance(thing, dict):
        thing.update({"a": torch.ones(2), "self": thing, "again": thing})
    else:
        thing.extend([torch.ones(2), thing, thing])
    return thing


def nested(depth: int) -> Any:
    tree: Any = torch.ones(2)
    for _ in range(depth):
        tree = [tree]
    return tree


def branching(depth: int) -> Any:
    """Few objects, but 2 ** depth ways to the tensor."""
    tree: Any = torch.ones(2)
    for _ in range(depth):
        tree = [tree, tree]
    return tree


MAKERS: dict[str, Callable[[], Any]] = {
    "list subclass": lambda: Boxes("t", [torch.ones(2)]),
    "tuple subclass": lambda: Two(torch.ones(2), 3),
    "read-only dict": lambda: Frozen(a=torch.ones(2)),
    "fx lists": lambda: torch.fx.immutable_collections.immutable_list([torch.ones(2)]),
    "items as attributes": lambda: Attributes(a=torch.ones(2)),
    "field not set": lambda: Partly(torch.ones(2)),
    "frozen with slots": lambda: Slotted(torch.ones(2)),
    "dict in itself": lambda: holding_itself(dict),
    "list in itself": lambda: holding_itself(list),
    "subclass in itself": lambda: holding_itself(OrderedDict),
    "400 deep": lambda: nested(400),
    "branching": lambda: branching(40),
    "uninitialized": lambda: nn.LazyLinear(2).weight,
    "uninitialized inside": lambda: {"weight": nn.LazyLinear(2).weight, "x": torch.ones(2)},
    "liar": lambda: Liar([torch.ones(2)]),
    "refusing tuple": lambda: RefusingTuple([torch.ones(2)]),
    "refusing dict": lambda: RefusingDict(a=torch.ones(2)),
    "refusing key": lambda: {RefusingKey(): torch.ones(2)},
    "opaque": Opaque,
    "refusing tensor": lambda: torch.ones(2).as_subclass(RefusingTensor),
    "tensor that cannot be detached": lambda: torch.ones(2).as_subclass(Undetached),
    "counter": lambda: Counter("ab"),
    "default dict": lambda: defaultdict(list, a=torch.ones(2)),
    "size": lambda: torch.Size([2, 3]),
    "return type": lambda: torch.ones(2, 3).max(0),
    "module": lambda: nn.ReLU(),
    "class": lambda: Partly,
}


def gives(thing: Any, kind: Any = Calls) -> nn.Module:
    """Gives ``thing``, which may have been given to it."""
    made: nn.Module = kind(lambda *args, **kwargs: thing)
    return made


class Hand(nn.Module):
    """Hands what the first module gives to the second."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self) -> Any:
        return self.second(self.first(), thing=self.first())


def everything(name: str, module: nn.Module) -> bool:
    return True


def all_blocks(model: nn.Module) -> contextlib.ExitStack:
    blocks = contextlib.ExitStack()
    blocks.enter_context(capture(model, everything, inputs=True, grads=True, clone=True))
    blocks.enter_context(edit(model, lambda output, call: output, everything))
    blocks.enter_context(edit(model, lambda output, call: None, everything))
    blocks.enter_context(timeline(model))
    blocks.enter_context(monitor(model, everything, grads=True))
    return blocks


def alone(thing: Any) -> Any:
    return thing


def inside_others(thing: Any) -> Any:
    x = torch.ones(2, 3, requires_grad=True)
    return [x, ModelOutput([("a", Pair(thing, x)), ("b", Slotted(Boxes("t", [thing, torch.arange(3), None])))])]


@pytest.fixture(params=MAKERS)
def thing(request: pytest.FixtureRequest) -> Any:
    return MAKERS[request.param]()


@pytest.mark.parametrize("placed", [alone, inside_others])
@pytest.mark.parametrize("odd", [nn.Module, Empty, Equal, Refusing, Unhashable])
def test_the_model_gives_the_same_unchanged_object_with_our_blocks_open(thing: Any, odd: type, placed: Any) -> None:
    tree = placed(thing)
    kind = type("Odd", (Calls,), {name: value for name, value in vars(odd).items() if odd is not nn.Module})
    model = Hand(gives(tree, kind), gives(tree, kind))
    before = [(tensor, tensor.requires_grad, tensor._version) for tensor in tensors(tree)]
    with all_blocks(model), capture(model, everything, inputs=True, grads=True) as seen:
        assert model() is tree
        assert len(repr(seen)) < 10_000
    assert {type(value) for value in (*seen.values(), seen.input("second").args[0])} == {type(tree)}
    for (tensor, grad, version), now in zip(before, tensors(tree), strict=True):
        assert now is tensor and (tensor.requires_grad, tensor._version) == (grad, version)
        assert not tensor._backward_hooks
    assert run_until(model, "first") is tree
    assert leftover_hooks(model) == []


def test_an_edit_may_return_another_of_the_same_kind_and_a_deep_one_is_still_checked() -> None:
    for make in MAKERS.values():
        model, new = gives(make()), make()
        with edit(model, lambda output, call, new=new: new, everything):
            assert model() is new
    model = gives(nested(20))
    with edit(model, lambda output, call: nested(19)), pytest.raises(TypeError, match="Return the same structure"):
        model()


def test_subclasses_keep_their_attributes_and_what_is_not_set() -> None:
    boxes = map_tensors(torch.neg, Boxes("t", [torch.ones(1), 2]))
    assert (type(boxes), boxes.tag, boxes[0].item(), boxes[1]) == (Boxes, "t", -1, 2)
    two = map_tensors(torch.neg, Two(torch.ones(1), 2))
    assert (type(two), two.tag, two[0].item(), two[1]) == (Two, "two", -1, 2)
    counts = map_tensors(torch.neg, defaultdict(list, a=torch.ones(1)))
    assert (counts["a"].item(), counts["b"]) == (-1, [])
    partly = map_tensors(torch.neg, Partly(torch.ones(1)))
    assert partly.logits.item() == -1 and not hasattr(partly, "loss")
    assert map_tensors(torch.neg, Slotted(torch.ones(1))).logits.item() == -1


@pytest.mark.parametrize("make", [Frozen, Attributes, ModelOutput])
def test_a_dict_with_ways_of_its_own_is_rebuilt_without_them(make: type) -> None:
    tree = make(a=torch.ones(1)) if make is not ModelOutput else ModelOutput([("a", torch.ones(1))])
    twin = map_tensors(torch.neg, tree)
    assert (type(twin), twin["a"].item(), tree["a"].item()) == (make, -1, 1)
    if make is not Frozen:
        assert twin.a is twin["a"]


def test_the_gradient_comes_in_an_unusual_container_too() -> None:
    model = Calls(lambda x: Boxes("t", [x * 2, Two(x * 3, None), Frozen(a=x * 4), Partly(x * 5)]))
    with capture(model, "", grads=True) as seen:
        first, (second, _), third, fourth = model(torch.ones(1, requires_grad=True))
        (first + second + 2 * third["a"] + 3 * fourth.logits).backward()
    first, second, third, fourth = seen.grad("")
    assert [first.item(), second[0].item(), third["a"].item(), fourth.logits.item()] == [1, 1, 2, 3]
    assert seen.grad("").tag == "t"
    assert not any(tensor.requires_grad for tensor in tensors(seen[""]))


def test_a_container_that_comes_twice_is_one_in_the_copy_too() -> None:
    inner = [torch.ones(1)]
    left, right = map_tensors(torch.neg, (inner, inner))
    assert left is right and left is not inner


def test_a_line_about_a_structure_ends_somewhere() -> None:
    assert describe(holding_itself(list)) == "[(2,) float32, ..., ...]"
    assert describe(nested(20)) == "[[[[[[[[...]]]]]]]]"
    assert describe({RefusingKey(): 1}) == "{RefusingKey: int}"


# objects that are no containers, but hold tensors

OBJECTS: dict[str, Callable[[Tensor], Any]] = {
    "UserDict": lambda x: UserDict(a=x),
    "mappingproxy": lambda x: MappingProxyType({"a": x}),
    "SimpleNamespace": lambda x: SimpleNamespace(a=x),
    "ChainMap": lambda x: ChainMap({"a": x}),
    "deque": lambda x: deque([x]),
    "frozenset": lambda x: frozenset([x]),
}
each_object = pytest.mark.parametrize(("name", "make"), OBJECTS.items(), ids=OBJECTS)


def mixed_at_0(model: nn.Module) -> None:
    with ManifoldMixup(model, "0", include_input=False)(torch.rand(4, 2), torch.zeros(4)) as mixed:
        model(mixed.x)


@each_object
def test_that_there_is_no_gradient_inside_an_object_has_its_own_reason(name: str, make: Callable[..., Any]) -> None:
    model = Calls(make)
    with capture(model, "", grads=True) as seen:
        model(torch.ones(2, requires_grad=True))
    with pytest.raises(RuntimeError, match=f"inside of '{name}', which is kept as it is and not looked into"):
        seen.grad("")


@each_object
def test_a_layer_that_hides_a_tensor_in_an_object_is_not_mixed_by_half(name: str, make: Callable[..., Any]) -> None:
    model = nn.Sequential(Calls(lambda x: (x, make(x))), nn.Identity())
    with pytest.raises(ValueError, match=rf"in an attribute of a {name}, .* choose another layer"):
        mixed_at_0(model)


def test_an_attribute_beside_the_parts_is_not_left_unmixed_in_silence() -> None:
    def with_attribute(x: Tensor) -> Any:
        boxes = Boxes("t", [x])
        boxes.hidden = x * 3  # type: ignore[attr-defined]
        return boxes

    with pytest.raises(ValueError, match="in an attribute of a Boxes"):
        mixed_at_0(nn.Sequential(Calls(with_attribute)))


class Mode(tuple[int, int], enum.Enum):
    FAST = (1, 2)


@dataclasses.dataclass
class Count:
    calls: int = 0


def test_what_holds_no_tensor_goes_through_mixing_as_the_object_it_is() -> None:
    count, given = Count(), []
    model = nn.Sequential(Calls(lambda x: (x, Mode.FAST, count)), Calls(lambda _: None))
    model[1].forward = given.append  # type: ignore[assignment]
    mixed_at_0(model)
    assert given[0][1] is Mode.FAST
    assert given[0][2] is count


def test_a_tensor_that_an_output_holds_twice_is_mixed_once() -> None:
    model, given = nn.Sequential(Calls(lambda x: (x, [x])), nn.Identity()), []
    model[1].forward = given.append  # type: ignore[assignment]
    mixed_at_0(model)
    assert given[0][0] is given[0][1][0]


# tensors of unusual kinds


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_a_nested_output_can_be_edited_and_is_refused_for_mixing() -> None:
    lengths = [torch.ones(2, 3), torch.ones(1, 3)]
    model = nn.Sequential(Calls(lambda x: torch.nested.nested_tensor(lengths)), nn.Identity())
    with edit(model, lambda output, call: output * 2, "0"):
        assert model(torch.ones(1))[0].sum() == 12
    with pytest.raises(ValueError, match="a nested tensor, whose examples have different lengths"):
        mixed_at_0(model)


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.sparse_csr], ids=str)
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
def test_what_torch_cannot_mix_is_named(kind: Any) -> None:
    make = (lambda x: x.to(kind)) if isinstance(kind, torch.dtype) else (lambda x: x.to_sparse(layout=kind))
    with pytest.raises(ValueError, match=r"holds a Tensor of dtype .* which torch cannot mix .*choose another layer"):
        mixed_at_0(nn.Sequential(Calls(make)))
