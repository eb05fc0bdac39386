"""The tables of the five documents: a step leads to the cells that run it, and every promised claim is a step."""

import json
from pathlib import Path

import pytest

from hooklab.course.lesson00.documents import DOCUMENTS, table
from hooklab.course.lesson00.symptoms import Tagged

PROMISED = json.loads((Path(__file__).parents[1] / "notebooks" / "promised.json").read_text(encoding="utf-8"))


def test_a_step_leads_to_the_first_cell_of_each_lesson_that_runs_it():
    cells = [
        Tagged("S3.9", "03_forward_hooks", "Replace", "a1"),
        Tagged("S3.9", "03_forward_hooks", "Later", "a2"),
        Tagged("S3.9", "07_manifold_mixup", "The hook", "b1"),
        Tagged("S0.1", "00_start_here", "Hooks", "c1"),
    ]
    (row,) = table(cells, "S3").split("\n")[2:]  # of S3's steps, one has cells
    assert row.endswith(
        "| [lesson 3, Replace](03_forward_hooks.ipynb#cell-id=a1), "
        "[lesson 7, The hook](07_manifold_mixup.ipynb#cell-id=b1) |"
    )


def test_a_claim_without_words_is_refused_by_name():
    with pytest.raises(LookupError, match=r"claim-S0\.99 has no words"):
        table([Tagged("S0.99", "03_forward_hooks", "Return", "b4")], "S0")


def test_every_claim_that_a_lesson_promises_is_a_step_of_its_document():
    promised = {claim for lesson in PROMISED.values() for claim in lesson["claims"]}
    steps = {claim for document in DOCUMENTS.values() for claim in document}
    assert promised - steps == set()
    assert all(claim.startswith(f"{document}.") for document, found in DOCUMENTS.items() for claim in found)
