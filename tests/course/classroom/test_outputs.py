"""grades.csv, the feedback pages and the report: what is in them, and that nobody can put anything else there."""

from __future__ import annotations

import csv
import io
import re
from html.parser import HTMLParser

from hooklab.course.classroom.grade import pages
from hooklab.course.classroom.grading import Graded
from hooklab.course.classroom.lessons import lesson_at
from hooklab.course.classroom.report import kind_of_reason
from hooklab.course.classroom.verdicts import TAMPERED, Verdict

LESSON = lesson_at(0)
FORGOTTEN = Verdict(
    "not yet",
    "your result is None",
    [("expected", "a tensor"), ("likely", "A `return` is missing. Write it.")],
    cell=2,
    lines="def twice_as_large(x):\n    x * 2",
)
RIGHT = Verdict("correct", "two tensors", cell=2, lines="def twice_as_large(x):\n    return x * 2", points=1)
EMPTY = Verdict("not attempted", "write your code", cell=2, lines="raise NotImplementedError()")
NAMES = [
    "<img src=x onerror=alert(1)>",
    '=HYPERLINK("http://example.org","click")',
    "+1+1",
    "@SUM(1)",
    "-2",
    "  =1",
    "../../etc/passwd",
    "/absolute",
    "quo\"te's",
    "two\nlines",
    "\t=1",
    "right\u202eleft",
    "half\ud800",
    "a" * 300,
    "学生",
    "",
]


class Tags(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words = ""
        self.feed(page)
        self.words = " ".join(self.words.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.words += data


def written(*graded: Graded) -> dict[str, str]:
    return pages(graded, "")


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_grades_have_a_row_for_each_student_and_exercise() -> None:
    graded = [*class_of(["ana"], RIGHT), *class_of(["bo"], FORGOTTEN)]

    ana, bo = rows(written(*graded)["grades.csv"])

    assert (ana["student"], ana["exercise"], ana["outcome"], ana["points"]) == ("ana", "0.1", "correct", "1")
    assert (bo["outcome"], bo["points"], bo["reason"]) == ("not yet", "0", "A `return` is missing.")


def test_no_name_is_a_formula_in_a_spreadsheet() -> None:
    graded = [Graded(name, LESSON, {"0.1": RIGHT}, ("=note",)) for name in NAMES]

    for row in rows(written(*graded)["grades.csv"]):
        for field in row.values():
            assert not field.strip().startswith(("=", "+", "-", "@")) and "\n" not in field


def test_no_name_and_no_answer_puts_a_tag_into_a_page() -> None:
    script = "</pre><script>alert(1)</script><style>*{}</style>"
    evil = Verdict("not yet", script, [(script, script), ("likely", f"{script}: {script}")], 2, script, (script,))
    plain = {tag for text in written(*class_of(["a"], FORGOTTEN)).values() for tag in Tags(text).tags}

    pages = written(*[Graded(name, LESSON, {"0.1": evil}, (script,)) for name in NAMES])

    for name, text in pages.items():
        if name.endswith(".html"):
            assert set(Tags(text).tags) <= plain | {"h3", "ul", "li", "h4", "code"}
            assert "Content-Security-Policy" in text


def class_of(names: list[str], verdict: Verdict) -> list[Graded]:
    return [Graded(name, LESSON, {"0.1": verdict}) for name in names]


def test_every_name_has_a_page_of_its_own_inside_the_folder() -> None:
    pages = written(*class_of(NAMES, RIGHT))

    assert len([name for name in pages if name.startswith("feedback/")]) == len(NAMES)
    assert "feedback/学生.html" in pages
    assert len({name.lower() for name in pages}) == len(pages)
    assert [name for name in pages if "/" in name and not re.fullmatch(r"feedback/[\w ()-]+\.html", name)] == []


def test_a_students_page_has_their_lines_and_the_message_and_nobody_else() -> None:
    graded = [*class_of(["ana"], FORGOTTEN), *class_of(["bo"], RIGHT)]

    page = Tags(written(*graded)["feedback/ana.html"]).words

    assert "x * 2" in page and "your result is None" in page and "How a lesson works" in page
    assert "bo" not in page.split() and "return x * 2" not in page


def test_the_report_names_reasons_by_frequency_with_an_example_and_no_author() -> None:
    other = Verdict("not yet", "the numbers are others", lines="def twice_as_large(x):\n    return x")
    names = ["ana", "bo", "chen"]
    graded = [*class_of(names, FORGOTTEN), *class_of(["dilek"], other), *class_of(["emil"], EMPTY)]

    page = Tags(written(*graded)["report.html"]).words

    assert "A return is missing. Write it. (0.1: 3 of 5)" in page
    assert page.index("3 × A return is missing.") < page.index("1 × the numbers are others")
    assert "What to say: Write it." in page
    assert "Go back to “How a lesson works”" in page
    examples = page[page.index("3 × A return is missing.") :]
    assert "x * 2" in examples and not [name for name in names if name in examples]


def test_the_report_begins_with_what_was_not_understood_rather_than_with_an_exception() -> None:
    raised = Verdict("not yet", "twice_as_large raised NameError: name 'y' is not defined")

    page = Tags(written(*class_of(["ana", "bo"], raised), *class_of(["chen"], FORGOTTEN))["report.html"]).words

    common = page[page.index("To teach next") :]
    assert common.index("A return is missing. Write it. (0.1: 1 of 3)") < common.index("raised NameError")


def test_the_report_shows_what_the_teacher_should_look_at() -> None:
    tampered = Verdict(TAMPERED, "mine", notes=("the check accepts a wrong answer (f) after this one",))

    page = Tags(written(*class_of(["ana"], tampered))["report.html"]).words

    assert "ana, 0.1: the check accepts a wrong answer" in page
    assert "1 ⚠ tampered" in page


def test_a_lesson_that_nobody_has_begun_has_no_chapter_and_harmless_notes_are_one_line() -> None:
    three = lesson_at(3)
    begun = Graded("ana", LESSON, {"0.1": FORGOTTEN}, ("a.ipynb: not graded, b.ipynb counts as the newest",))
    untried = Graded("ana", three, {one.id: EMPTY for one in three.exercises})

    page = Tags(written(begun, untried)["report.html"]).words

    assert "puts out" not in page and "To look at" not in page
    assert "Also: ana, lesson 0: a.ipynb: not graded" in page
    untried = Tags(written(*class_of(["ana", "bo"], EMPTY), *class_of(["chen"], RIGHT))["report.html"]).words
    assert "2 not tried" in untried


def test_somebody_without_a_notebook_is_in_every_output() -> None:
    nothing = Graded("bo", LESSON, {"0.1": Verdict("not handed in")}, ("no notebook was handed in",))

    made = written(*class_of(["ana"], RIGHT), nothing)

    assert rows(made["grades.csv"])[1]["outcome"] == "not handed in"
    assert "bo: no notebook was handed in" in Tags(made["report.html"]).words
    assert "not handed in" in made["feedback/bo.html"] and "no notebook" not in made["feedback/bo.html"]


def test_a_reason_without_a_name_leaves_out_what_is_one_answers_own() -> None:
    texts = ["f raised KeyError: 'a', at line 3: `x`", "g raised KeyError: 'b', at line 9: `y`"]

    reasons = {kind_of_reason(Verdict("not yet", text), text[0]) for text in texts}

    assert reasons == {"it raised KeyError: …"}
    twice = Verdict("not yet", "model(x) did not run (twice)")
    assert kind_of_reason(twice, "f") == "model(x) did not run …"
