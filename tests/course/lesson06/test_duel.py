"""Random programs of hooks: what runs them, what it finds, and what the checks make of it."""

import inspect
import re

import pytest
import torch
from torch import nn
from torch.nn.modules._functions import BackwardHookFunction

from hooklab.course.build.records import solution
from hooklab.course.build.sources import Course
from hooklab.course.exercises import attempt
from hooklab.course.lesson06 import border, figures, reading
from hooklab.course.lesson06.duel import beside_torch
from hooklab.course.lesson06.programs import GROUPS, Hook, Program, random_programs
from hooklab.course.lesson06.running import run
from hooklab.course.lesson06.tables import ReadyTables
from hooklab.course.root import find_root

SPACE = solution(Course(find_root()), "6.4").__call__.__globals__  # of the lesson's classes
WithHooks, WithBorder, WithAlways = SPACE["WithHooks"], SPACE["WithBorder"], SPACE["WithAlways"]


class Whole(WithBorder, WithAlways):
    """Both: nodes around a call that runs hooks after an error."""


class WithTorchsMarks(Whole):
    cross = staticmethod(border.torchs_cross)


class NotWritten(ReadyTables):
    def __call__(self, *args):
        raise NotImplementedError()


# --- programs


def test_the_same_seed_draws_the_same_programs():
    assert random_programs(5, seed=3) == random_programs(5, seed=3) != random_programs(5, seed=4)


def test_groups_may_be_left_out_without_changing_the_others():
    assert random_programs(5, 1, ["raise"]) == [one for one in random_programs(5, 1) if one.group == "raise"]


def test_a_program_reads_as_code():
    hooks = (
        Hook("a", "forward", "removes b", prepend=True),
        Hook("b", "forward", always_call=True, at_start=False),
    )
    assert Program(hooks, ()).made == [
        "m = Module()   # forward returns 3 * sum(args)",
        "a = m.register_forward_hook(removes(b), prepend=True)",
        "# b, when it is added: m.register_forward_hook(looks, always_call=True)",
    ]


def test_a_log_holds_all_that_could_be_seen():
    hooks = (Hook("a", "pre", "doubles"), Hook("b", "forward", "raises_once", always_call=True))
    ran = run(nn.Module, Program(hooks, ("m(x, 5)", "m(x)")))
    assert ran.errors == []
    assert ran.log == [
        ">>> m(x, 5)",
        "a gets ([1, 2], 5)",
        "forward gets [12, 14]",
        "b gets ([12, 14],), [36, 42]",
        "raises Boom('b')",
        ">>> m(x)",
        "a gets ([1, 2],)",
        "forward gets [2, 4]",
        "b gets ([2, 4],), [6, 12]",
        "returns [6, 12]",
    ]


def test_an_error_that_only_looks_like_the_programs_own_is_told_from_it():
    class Copies(WithHooks):
        def __call__(self, *args):
            try:
                return super().__call__(*args)
            except Exception as error:
                raise type(error)(*error.args) from None

    program = Program((Hook("a", "forward", "raises"),), ("m(x)",))
    assert run(nn.Module, program).log[-1] == "raises Boom('a')"
    assert run(Copies, program).log[-1] == "raises Boom, no error of the program's own"


# --- beside torch


@pytest.mark.parametrize(
    ("base", "groups"),
    [
        (WithHooks, ["look", "replace"]),
        (WithAlways, ["look", "replace", "come and go", "raise"]),
        (WithBorder, ["look", "replace"]),
        (WithTorchsMarks, list(GROUPS)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_call_without_a_fault_does_what_torch_does(base, groups):
    duel = beside_torch(base, groups, each=150, seed=1)
    assert duel.differences == [], duel.first_difference()


def test_the_one_difference_is_the_gradient_of_a_tensor_that_needs_none():
    duel = beside_torch(Whole, each=150, seed=2)
    assert len(duel.differences) > 20
    for match in duel.differences:
        torchs = match.line(match.torchs)
        of_x = re.findall(r"\[.*?\]", torchs)[0]
        assert "[0, 0]" in torchs  # and yours has the same there as for x: the output is a multiple of x + y
        assert match.line(match.yours) == torchs.replace("[0, 0]", of_x)


def test_torch_marks_what_needs_no_gradient():
    assert "mark_non_differentiable" in inspect.getsource(BackwardHookFunction.forward)
    x, y = torch.ones(1, requires_grad=True), torch.ones(1)
    assert [one.requires_grad for one in border.cross((x, y), print)] == [True, True]
    assert [one.requires_grad for one in border.torchs_cross((x, y), print)] == [True, False]


def test_a_first_difference_ends_with_both_lines_and_the_error():
    text = beside_torch(WithHooks, ["come and go"]).first_difference()
    assert text.startswith("m = Module()") and ">>> m(x)" in text
    assert text.splitlines()[-3].startswith("yours   raises RuntimeError")
    assert text.splitlines()[-2].startswith("torch   ")
    assert text.splitlines()[-1].strip() == "(OrderedDict mutated during iteration)"


def test_a_class_that_is_not_written_yet_is_told_so():
    duel = beside_torch(NotWritten)
    assert str(duel) == "NotWritten: NotWritten.__call__ is not written yet. Write it, and run this cell again."
    assert duel.first_difference() == str(duel)


def test_without_a_difference_it_says_so():
    assert beside_torch(nn.Module, ["look"], each=3).first_difference() == "Module: no difference was found."


def test_every_group_of_every_duel_has_its_squares():
    duels = [beside_torch(one, each=5) for one in (WithHooks, NotWritten)]
    axes = figures.draw_duels(duels).axes[0]
    assert sum(len(squares.get_paths()) for squares in axes.collections) == 5 * len(GROUPS)
    assert "not written yet" in [text.get_text() for text in axes.texts]


# --- the checks


def test_an_answer_that_builds_on_a_class_that_is_not_written_is_told_which():
    class Builds(NotWritten):
        def __call__(self, *args):
            return super().__call__(*args)

    assert "Builds builds on NotWritten, and NotWritten isn't written yet" in str(attempt("6.3", Builds))


def test_an_answer_with_the_stubs_line_in_it_is_told_of_that_first():
    class Builds(NotWritten):
        def __call__(self, *args):
            if not self.backward_hooks:
                return super().__call__(*args)
            raise NotImplementedError()

    assert "write your code in place of `raise NotImplementedError()`" in str(attempt("6.3", Builds))


# --- reading torch's own


def test_the_parts_of_torchs_call_stand_in_the_source_in_their_order():
    lines = reading.source_lines()
    places = [reading.first_line(part, lines) for part in reading.PARTS]
    assert places == sorted(set(places))
    assert places[-1] + reading.PARTS[-1].lines >= len(lines) - 3  # the last part is the end


def test_an_excerpt_has_no_comment_for_type_checkers(capsys):
    reading.show(*range(1, len(reading.PARTS) + 1))
    shown = capsys.readouterr().out
    assert "type: ignore" not in shown and "# 10 · " in shown
