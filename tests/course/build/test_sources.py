import pytest

from hooklab.course.build.sources import has_whole_regions, read_cells, solution_lines, stubbed
from tests.course.build.made_up import TINY, changed

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


def test_a_cell_has_its_number_line_kind_tags_and_text() -> None:
    first, _, claim, *_ = read_cells(TINY, "09_tiny.py")

    assert (claim.number, claim.line, claim.kind, claim.tags) == (3, 14, "code", ("claim-S0.1",))
    assert claim.text.startswith("total = 1 + 1\n")
    assert (first.kind, first.tags, first.text[:4]) == ("markdown", ("recap",), "# 9 ")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("text = 1\n" + TINY, "1: a cell, also the first, begins with `# %%`"),
        ("# text\n\n" + TINY, "1: a cell, also the first, begins with `# %%`"),
        (changed('[markdown] tags=["recap"]', "[markdwon]"), "1: a cell, also the first, begins with `# %%`"),
        (changed('# %% tags=["setup"]', '#%% tags=["setup"]'), "4: a cell, also"),
        (changed('# %% tags=["setup"]', '# %% tags="setup"'), "4: a cell, also"),
        (changed('# %% tags=["setup"]', '# %% tags=["setup"'), "4: a cell, also"),
        (changed('# %% tags=["setup"]', '    # %% tags=["setup"]'), "4: a cell, also"),
        (changed("# Return two.", "Return two."), "23: not valid Python: invalid syntax"),
        (changed("return first +", "return first + +/"), "38: not valid Python: invalid syntax"),
    ],
)
def test_a_source_that_cannot_be_read_is_told_with_its_line(source: str, said: str) -> None:
    with pytest.raises(SyntaxError) as refused:
        read_cells(source, "09_tiny.py")
    assert str(refused.value).startswith(f"09_tiny.py:{said}")


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


def test_regions_are_whole() -> None:
    assert has_whole_regions(TWO_REGIONS)


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    return 1",
        "### BEGIN SOLUTION\nreturn 1",
        "return 1\n### END SOLUTION",
        "### BEGIN SOLUTION\n### BEGIN SOLUTION\nx\n### END SOLUTION",
        "# BEGIN SOLUTION\nreturn 1\n# END SOLUTION",
        "### BEGIN SOLUTION here\nreturn 1\n### END SOLUTION",
    ],
)
def test_a_faulty_region_is_noticed(text: str) -> None:
    assert not has_whole_regions(text)
