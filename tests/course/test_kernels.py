"""What the kernels of the course's notebooks get, and what they are asked."""

from pathlib import Path
from typing import Any

import pytest
from torch.nn.modules import module
from torch.optim import optimizer

from hooklab.course.kernels import LEFT_BEHIND, environment


def test_a_kernels_environment_has_nothing_personal_and_no_grader(tmp_path: Path) -> None:
    base = {"NBGRADER_EXECUTION": "autograde", "MPLBACKEND": "agg", "PYTHONPATH": "/lib", "LANG": "C"}

    assert environment(tmp_path, tmp_path / "scratch", base) == {
        "LANG": "C",
        "PYTHONPATH": f"{tmp_path}:/lib",
        "IPYTHONDIR": f"{tmp_path}/scratch/ipython",
        "JUPYTER_RUNTIME_DIR": f"{tmp_path}/scratch/runtime",
        "PYTHONWARNINGS": "ignore:Guards may run slower on Python 3.13.0",
    }


@pytest.mark.parametrize(
    ("register", "table"),
    [
        (module.register_module_forward_hook, "_global_forward_hooks"),
        (module.register_module_forward_pre_hook, "_global_forward_pre_hooks"),
        (module.register_module_full_backward_hook, "_global_backward_hooks"),
        (module.register_module_full_backward_pre_hook, "_global_backward_pre_hooks"),
        (module.register_module_parameter_registration_hook, "_global_parameter_registration_hooks"),
        (optimizer.register_optimizer_step_post_hook, "_global_optimizer_post_hooks"),
    ],
)
def test_a_hook_for_the_whole_process_is_seen_until_it_is_removed(register: Any, table: str) -> None:
    handle = register(lambda *_: None)
    try:
        assert eval(LEFT_BEHIND) == [table]
    finally:
        handle.remove()
    assert eval(LEFT_BEHIND) == []
