"""Whose line it was: libraries and the course are not the learner, whatever path leads to them."""

import site
from pathlib import Path

import numpy as np
import pytest
import torch

import hooklab
from hooklab.course.exercises.frames import whose

LIBRARY_FILES = [Path(torch.nn.modules.module.__file__), Path(np.__file__), Path(site.__file__)]


@pytest.mark.parametrize("file", LIBRARY_FILES, ids=lambda file: file.parent.name)
def test_a_librarys_frames_are_not_the_learners_even_through_a_symbolic_link(file, tmp_path):
    link = tmp_path / "linked"
    link.symlink_to(file.parent)
    assert whose(str(file)) == "library"
    assert whose(str(link / file.name)) == "library"


def test_hooklab_in_a_linked_folder_is_the_course_or_a_library(tmp_path):
    link = tmp_path / "clone"
    link.symlink_to(Path(hooklab.__file__).parents[1])
    assert whose(str(link / "hooklab" / "course" / "lesson04" / "checks.py")) == "course"
    assert whose(str(link / "hooklab" / "capturing.py")) == "library"
    assert whose(str(link / "lessons" / "04_forward_pre_hooks.py")) == "learner"


def test_a_users_own_site_packages_are_a_library():
    assert whose(str(Path(site.getusersitepackages()) / "torch" / "nn" / "modules" / "module.py")) == "library"


@pytest.mark.parametrize("file", [__file__, "/tmp/ipykernel_12/345.py", "<stdin>", "<string>"])
def test_everything_else_is_the_learners(file):
    assert whose(file) == "learner"


def test_a_folder_whose_name_begins_alike_is_not_the_package():
    assert whose(str(Path(hooklab.__file__).parent) + "_answers/mine.py") == "learner"
