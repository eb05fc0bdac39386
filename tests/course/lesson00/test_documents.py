"""The tables of the five documents: a step leads to the cells that run it, and every step has one."""

import pytest

from hooklab.course.lesson00.documents import DOCUMENTS, table
from hooklab.course.lesson00.symptoms import Tagged

EVERY = [
    Tagged(claim, "03_forward_hooks", "Replace", f"first-{claim}") for steps in DOCUMENTS.values() for claim in steps
]


def test_a_step_leads_to_the_first_cell_of_each_lesson_that_runs_it():
    more = [
        Tagged("S3.9", "03_forward_hooks", "Later", "a2"),
        Tagged("S3.9", "07_manifold_mixup", "The hook", "b1"),
    ]
    rows = table([*EVERY, *more], "S3").split("\n")[2:]
    assert len(rows) == len(DOCUMENTS["S3"])
    assert rows[list(DOCUMENTS["S3"]).index("S3.9")].endswith(
        "| [lesson 3, Replace](03_forward_hooks.ipynb#cell-id=first-S3.9), "
        "[lesson 7, The hook](07_manifold_mixup.ipynb#cell-id=b1) |"
    )


def test_a_claim_without_words_is_refused_by_name():
    with pytest.raises(LookupError, match=r"claim-S0\.99 has no words"):
        table([Tagged("S0.99", "03_forward_hooks", "Return", "b4")], "S0")


def test_a_claim_that_no_cell_shows_is_refused_by_name():
    with pytest.raises(LookupError, match=r"no cell shows claim-S3\.9$"):
        table([cell for cell in EVERY if cell.key != "S3.9"], "S3")


def test_a_claim_has_its_documents_name():
    assert all(claim.startswith(f"{document}.") for document, found in DOCUMENTS.items() for claim in found)
