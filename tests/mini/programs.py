"""Random programs for mini: of lesson 6's kind, with more kinds of hooks, more results of hooks, and tensor hooks."""

import random

from hooklab.course.lesson06.programs import CALLS, KEEPS_TENSORS, METHODS, REPLACES, Hook, Program

BACKWARD_RETURNS = (
    *("looks", "looks", "doubles_each", "doubles_each", "returns_the_same", "returns_nones", "returns_a_list"),
    *("returns_zero", "keeps_the_first", "returns_no_args", "returns_one_more", "raises"),
)
RETURNS = {
    "pre": (*REPLACES["pre"], "returns_both", "raises"),
    "forward": (*REPLACES["forward"], "raises", "raises_once"),
    "backward": BACKWARD_RETURNS,
    "backward_pre": BACKWARD_RETURNS,
}
CALM = KEEPS_TENSORS | {"backward_pre": KEEPS_TENSORS["backward"]}
FORWARD = (*CALLS, "m()", "m(x, k=y)", "m(k=x)", "m(m(x))", "with torch.no_grad(): m(x)")
BACKWARD = (
    "m(x).sum().backward()",
    "m(y).sum().backward()",
    "m(x, 5, y).sum().backward()",
    "m(x, k=y).sum().backward()",
    "m(m(x)).sum().backward()",
    "(m(x) + m(x)).sum().backward()",
    "(m(x) * m(y)).sum().backward()",
    "(m(x.relu()) ** 3).sum().backward()",
    "m(x).backward()",
    "z = m(x).sum(); z.backward(); z.backward()",
    "z = (m(x) ** 2).sum(); z.backward(); z.backward()",
    "z = m(x).sum(); z.backward(retain_graph=True); (2 * z).backward()",
    "z = m(x).sum(); a.remove(); z.backward()",
    "m(x).sum().backward(); held = x.grad; m(x).sum().backward(); looks(held)",
    "with b as entered: looks(entered is b); m(x).sum().backward()",
)
TENSORS = (
    "m(x).mul_(2).sum().backward()",
    "h = x * 2; h.mul_(3); m(h).sum().backward()",
    "h = m(x); z = h ** 2; h.mul_(2); z.sum().backward()",
    "h = x * 2; z = m(h); z.mul_(2); (z ** 2).sum().backward()",
    "x.mul_(2)",
    "h = m(x).detach(); h.mul_(2); looks(h)",
    "h = x * 2; h.retain_grad(); h.register_hook(doubles); m(h).sum().backward(); looks(h.grad)",
    "h = x * 2; h.register_hook(doubles); h.mul_(3); h.retain_grad(); m(h).sum().backward(); looks(h.grad)",
    "z = m(x); z.retain_grad(); z.sum().backward(); looks(z.grad)",
    "z = m(x); handle = z.register_hook(doubles); z.register_hook(looks); handle.remove(); z.sum().backward()",
    "z = m(x) * 1; z.register_hook(lambda grad: y); z.sum().backward()",
    "h = x * 1; h.register_hook(lambda grad: y); m(h).sum().backward()",
    "z = m(x) * 1; z.register_hook(lambda grad: grad.sum()); z.sum().backward()",
    "z = m(x) * 1; z.register_hook(lambda grad: 1.0); z.sum().backward()",
    "z = m(x) * 1; z.register_hook(lambda grad: (grad,)); z.sum().backward()",
    "handle = x.register_hook(doubles); m(x).sum().backward(); handle.remove()",
    "handle = x.register_hook(looks); m(x, y).sum().backward(); handle.remove()",
    "x.register_hook(lambda grad: x.register_hook(looks) and None); m(x).sum().backward()",
    "h = m(x) * 1; h.register_hook(lambda grad: x); h.retain_grad(); h.sum().backward(); looks(h.grad.requires_grad)",
    "t = torch.tensor([3.0], requires_grad=True); m(t).backward(); looks(t.grad)",
    "looks(len(torch.tensor([[1.0, 2.0]])))",
    "y.register_hook(looks)",
    "(x * 2).grad",
)


def wild_programs(number: int, seed: int) -> list[Program]:
    """Draw programs; the same ones for the same seed."""
    chance = random.Random(seed)
    return [_program(chance) for _ in range(number)]


def _program(chance: random.Random) -> Program:
    # A program in which anything may happen ends at its first error: in most, most hooks return something sensible.
    returns = chance.choice((CALM, CALM, RETURNS))
    crowd = chance.choice((None, None, *METHODS))  # all hooks of one kind, so that they meet
    hooks = tuple(_hook(chance, name, crowd or chance.choice(list(METHODS)), returns) for name in "abcde")
    steps = chance.choices((*FORWARD, *BACKWARD, *BACKWARD, *TENSORS), k=4)
    return Program(hooks, tuple(steps), forward_raises=chance.random() < 0.1)


def _hook(chance: random.Random, name: str, kind: str, returns: dict[str, tuple[str, ...]]) -> Hook:
    does = chance.choice((*returns[kind], chance.choice(("removes ", "adds ")) + chance.choice("abcde")))
    everywhere = chance.random() < 0.2
    takes_kwargs = kind == "forward" or (kind == "pre" and not everywhere)
    is_error = kind == "pre" and does not in ("looks", "returns_both")  # it has to return both, or nothing
    return Hook(
        name,
        kind,
        does,
        prepend=not everywhere and chance.random() < 0.25,
        always_call=kind == "forward" and chance.random() < 0.4,
        at_start=chance.random() < 0.7,
        with_kwargs=takes_kwargs and chance.random() < (0.1 if is_error else 0.4),
        everywhere=everywhere,
    )
