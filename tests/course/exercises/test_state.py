"""State of the process: a check runs in the usual one, and what an answer or an earlier cell has changed is told."""

import random
import sys
import warnings

import numpy as np
import pytest
import torch

from hooklab.course.exercises import attempt
from hooklab.course.exercises.patches import AT_IMPORT
from hooklab.course.exercises.state import _filters, _stance, usual_state
from tests.course.exercises.made_up import calls_with_tensor, outcome_of


class Deed:
    """A change of state, the words in which a note speaks of it, and what must be as before."""

    def __init__(self, words, change, probe):
        self.words, self.change, self.probe = words, change, probe


open_blocks = []


def left_open(block):
    open_blocks.append(block)
    block.__enter__()


def is_saved_tensor_hook_on():
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


DEEDS = [
    Deed("inference mode", lambda: left_open(torch.inference_mode()), torch.is_inference_mode_enabled),
    Deed("gradient mode", lambda: torch.set_grad_enabled(False), torch.is_grad_enabled),
    Deed("default device", lambda: torch.set_default_device("meta"), torch.get_default_device),
    Deed("autocast", lambda: left_open(torch.autocast("cpu")), lambda: torch.is_autocast_enabled("cpu")),
    Deed("hooks on saved tensors", lambda: left_open(torch.autograd.graph.save_on_cpu()), is_saved_tensor_hook_on),
    Deed("default dtype", lambda: torch.set_default_dtype(torch.float64), torch.get_default_dtype),
    Deed("anomaly detection", lambda: left_open(torch.autograd.detect_anomaly()), torch.is_anomaly_enabled),
    Deed("the compiler's stance", lambda: torch.compiler.set_stance("force_eager"), _stance),
]
ONLY_LEFT = [
    Deed("the warning filters", lambda: warnings.simplefilter("ignore"), _filters),
    Deed(
        "fast path of attention",
        lambda: torch.backends.mha.set_fastpath_enabled(False),
        torch.backends.mha.get_fastpath_enabled,
    ),
    Deed("torch's random seed", lambda: torch.manual_seed(3), torch.initial_seed),
    Deed("trace function", lambda: sys.settrace(lambda *event: None), sys.gettrace),
    Deed("sys.stdout", lambda: setattr(sys, "stdout", None), lambda: sys.stdout),
    Deed("sys.stderr", lambda: setattr(sys, "stderr", None), lambda: sys.stderr),
]


@pytest.fixture(autouse=True)
def as_before():
    """Put back what a test does on purpose, the guards of inference mode in the order of their nesting."""
    with usual_state([]):
        yield
    open_blocks.clear()


def names(deeds):
    return [f"{number}-{deed.words}" for number, deed in enumerate(deeds)]


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("deed", DEEDS + ONLY_LEFT, ids=names(DEEDS + ONLY_LEFT))
def test_state_that_an_answer_leaves_is_put_back_and_noted(deed, monkeypatch):
    def calls_twice(trial):
        before = deed.probe()
        trial.call(1)
        assert deed.probe() == before  # already for the next call
        trial.call(2)

    outcome = outcome_of(calls_twice, lambda x: deed.change(), monkeypatch)
    assert outcome.state == "correct"
    ((_, note),) = outcome.details  # once
    assert note.startswith("your code") and deed.words in note


def gradient_of_hidden(w, x):
    """The right answer to exercise 1.3."""
    hidden = w * x
    hidden.retain_grad()
    (hidden**2).sum().backward()
    return hidden.grad


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("deed", DEEDS, ids=names(DEEDS))
def test_state_of_an_earlier_cell_makes_no_right_answer_wrong_and_is_noted(deed):
    usual = deed.probe()
    deed.change()
    earlier = deed.probe()
    assert earlier != usual
    outcome = attempt("1.3", gradient_of_hidden)
    assert outcome.state == "correct"
    (note,) = [text for _, text in outcome.details]
    assert note.startswith("before this check")
    assert deed.words in note
    assert deed.probe() == earlier  # the learner's own, until they change it


def test_a_check_computes_in_one_thread_and_gives_the_others_back(monkeypatch):
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    seen = []
    assert outcome_of(calls_with_tensor, lambda x: seen.append(torch.get_num_threads()), monkeypatch).details == ()
    assert (seen, torch.get_num_threads()) == ([1], 3)
    torch.set_num_threads(before)


def test_an_exception_puts_state_back_too(monkeypatch):
    def answer(x):
        torch.set_grad_enabled(False)
        raise ValueError

    assert "gradient mode off" in str(outcome_of(calls_with_tensor, answer, monkeypatch))
    assert torch.is_grad_enabled()


def test_a_library_that_is_imported_for_the_first_time_may_add_its_warning_filters(monkeypatch):
    class LibraryWarning(UserWarning):
        pass

    def answer(x):
        warnings.filterwarnings("once", category=LibraryWarning)

    assert outcome_of(calls_with_tensor, answer, monkeypatch).details == ()


@pytest.mark.parametrize("change", [warnings.resetwarnings, lambda: warnings.simplefilter("ignore")])
def test_all_warning_filters_are_put_back_in_their_order(change, monkeypatch):
    warnings.filterwarnings("ignore", category=DeprecationWarning, module="a_library")
    warnings.simplefilter("error")
    before = list(warnings.filters)
    outcome = outcome_of(calls_with_tensor, lambda x: change(), monkeypatch)
    assert "the warning filters" in str(outcome)
    assert warnings.filters == before


def test_random_states_are_as_before(monkeypatch):
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()

    def answer(x):
        torch.randn(3)
        np.random.rand()
        random.random()

    assert outcome_of(calls_with_tensor, answer, monkeypatch).details == ()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()
    assert random.getstate() == before[2]


def test_what_the_compiler_changes_in_torch_is_no_replacement_of_an_answers():
    torch.compile(torch.nn.Identity(), backend="eager")(torch.ones(1))  # gives AdamW a method of its own
    assert "torch.optim.adamw.AdamW._init_group" not in AT_IMPORT.found()
