import pytest

from hooklab.course.build.sources import read_cells, region_fault, solution_lines, stubbed
from tests.course.build.made_up import TINY

TWO_REGIONS = """\
class Recorder:
    def __init__(self) -> None:
        ### BEGIN SOLUTION
        self.seen = []
        ### END SOLUTION

    def hook(self, grad):
        # keep it
        ### BEGIN SOLUTION
        if grad is not None:

            self.seen.append(grad)
        ### END SOLUTION
"""


def faults(source: str) -> list[str]:
    _, problems = read_cells(source, "09_tiny.py")
    return [str(problem) for problem in problems]


def test_a_cell_has_its_number_line_kind_tags_and_text() -> None:
    cells, problems = read_cells(TINY, "09_tiny.py")

    claim = cells[2]
    assert not problems
    assert (claim.number, claim.line, claim.kind, claim.tags) == (3, 14, "code", ("claim-S0.1",))
    assert claim.text.startswith("total = 1 + 1\n")


def test_a_marker_inside_a_string_begins_no_cell() -> None:
    source = '# %%\ntext = """\n# %% not a cell\n"""\n\n# %%\nx = 1\n'

    cells, problems = read_cells(source, "a.py")

    assert not problems
    assert [cell.line for cell in cells] == [1, 6]


def test_a_magic_is_written_as_a_comment_and_read_as_a_magic() -> None:
    cells, _ = read_cells("# %%\n# %matplotlib inline\n", "a.py")

    assert cells[0].text == "%matplotlib inline"


@pytest.mark.parametrize("tags", ['"claim-S3.12"', '"field", "field-05"', '"predict"', '"quiz", "recap"'])
def test_the_tags_of_the_course_are_known(tags: str) -> None:
    assert not faults(f"# %% tags=[{tags}]\nassert True\n")


@pytest.mark.parametrize(
    ("source", "line", "cell", "said"),
    [
        ('# %%\nx = 1\n\n# %% tags=["exercize"]\nx = 2\n', 4, 2, "unknown tag 'exercize'; known: check, "),
        ('# %% tags=["claim-S3"]\nassert 1\n', 1, 1, "unknown tag 'claim-S3'"),
        ('# %% tags=["field-05"]\nx = 1\n', 1, 1, "tag 'field-05' without the tag 'field'"),
        ('# %% tags=["claim-S1.2"]\nprint(1)\n', 1, 1, "tag 'claim-S1.2' on a cell without an assert"),
        ('# %% [markdown] tags=["hook-node"]\n# Hooks\n', 1, 1, "tag 'hook-node' on a cell that runs nothing"),
        ('# %% [markdown] tags=["claim-S1.2"]\n# assert\n', 1, 1, "tag 'claim-S1.2' on a cell without an assert"),
        ("# %%\nx = 1\n\n# %%\n\n# %%\ny = 1\n", 4, 2, "an empty cell"),
    ],
)
def test_a_faulty_cell_is_named_with_its_line(source: str, line: int, cell: int, said: str) -> None:
    (fault,) = faults(source)

    assert fault.startswith(f"09_tiny.py:{line}: cell {cell} ")
    assert said in fault


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import torch\n\n# %%\nx = 1\n", ":1: the first line must be a `# %%` line"),
        (
            "# %%\ndef f():\n    # %% inside\n    return 1\n",
            ":1: the first line must be a `# %%` line, and no other one may be indented",
        ),
        ('# %%\nx = 1\n\n# %%\ntext = """\n', ":5: this is not valid Python"),
    ],
    ids=["text before the first marker", "an indented marker", "not Python"],
)
def test_a_source_that_cannot_be_read_is_refused_with_the_line(source: str, said: str) -> None:
    (fault,) = faults(source)

    assert fault.startswith(f"09_tiny.py{said}")


def test_each_region_becomes_the_stub_at_its_own_indentation() -> None:
    assert (
        stubbed(TWO_REGIONS)
        == """\
class Recorder:
    def __init__(self) -> None:
        # YOUR CODE HERE
        raise NotImplementedError()

    def hook(self, grad):
        # keep it
        # YOUR CODE HERE
        raise NotImplementedError()
"""
    )


def test_solution_lines_are_those_inside_the_regions() -> None:
    assert solution_lines(TWO_REGIONS) == ["self.seen = []", "if grad is not None:", "self.seen.append(grad)"]


def test_whole_regions_have_no_fault() -> None:
    assert region_fault(TWO_REGIONS) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def f():\n    return 1", "a solution must be between"),
        ("### BEGIN SOLUTION\nreturn 1", "a solution must be between"),
        ("return 1\n### END SOLUTION", "a solution must be between"),
        ("### BEGIN SOLUTION\n### BEGIN SOLUTION\nx\n### END SOLUTION", "a solution must be between"),
        ("### BEGIN SOLUTION\n# later\n### END SOLUTION", "a solution region without code"),
        ("# BEGIN SOLUTION\nreturn 1\n# END SOLUTION", "a solution must be between"),
        ("### BEGIN SOLUTION here\nreturn 1\n### END SOLUTION", "a solution must be between"),
    ],
)
def test_a_faulty_region_is_refused(text: str, said: str) -> None:
    assert said in (region_fault(text) or "")
