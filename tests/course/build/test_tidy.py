from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_output

from hooklab.course.build.running import tidy


def printed(name: str, text: str) -> Any:
    return new_output("stream", name=name, text=text)


def shown(outputs: list[Any]) -> list[tuple[str, str]]:
    return [(one.get("name", one.output_type), one.get("text", "")) for one in outputs]


@given(st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.text("ab\n", min_size=1)), max_size=6))
def test_how_printed_text_was_cut_and_interleaved_leaves_no_trace(chunks: list[tuple[str, str]]) -> None:
    whole = {stream: "".join(text for name, text in chunks if name == stream) for stream in ("stdout", "stderr")}

    assert shown(tidy([printed(*chunk) for chunk in chunks])) == [(name, text) for name, text in whole.items() if text]


def test_text_before_and_after_a_figure_stays_where_it_was() -> None:
    figure = new_output("display_data", {"text/plain": "<Figure>", "image/png": "aGVsbG8="})

    tidied = tidy([printed("stdout", "a"), printed("stdout", "b"), figure, printed("stdout", "c")])

    assert shown(tidied) == [("stdout", "ab"), ("display_data", ""), ("stdout", "c")]


def test_a_widgets_view_goes_and_its_text_stays() -> None:
    view = {"text/plain": "IntSlider(value=3)", "application/vnd.jupyter.widget-view+json": {"model_id": "a1b2"}}

    (tidied,) = tidy([new_output("display_data", view)])

    assert tidied.data == {"text/plain": "IntSlider(value=3)"}
