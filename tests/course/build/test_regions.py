import pytest

from hooklab.course.build.source import region_fault, solution_lines, stubbed

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
        ("def f():\n    return 1", "a solution cell without"),
        ("### BEGIN SOLUTION\nreturn 1", "`### BEGIN SOLUTION` without `### END SOLUTION`"),
        ("return 1\n### END SOLUTION", "`### END SOLUTION` without `### BEGIN SOLUTION`"),
        ("### BEGIN SOLUTION\n### BEGIN SOLUTION\nx\n### END SOLUTION", "a second `### BEGIN SOLUTION`"),
        ("### BEGIN SOLUTION\n# later\n### END SOLUTION", "a solution region without code"),
        ("# BEGIN SOLUTION\nreturn 1\n# END SOLUTION", "`# BEGIN SOLUTION` is no delimiter"),
        ("### BEGIN SOLUTION here\nreturn 1\n### END SOLUTION", "`### BEGIN SOLUTION here` is no delimiter"),
    ],
)
def test_a_faulty_region_is_refused(text: str, said: str) -> None:
    assert said in (region_fault(text) or "")
