"""Sphinx's settings for the course as web pages; `python -m hooklab site` uses them."""

import re
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

project = html_title = "PyTorch hooks"
extensions = ["myst_nb", *(f"sphinx.ext.{one}" for one in ("autodoc", "napoleon", "intersphinx", "githubpages"))]
nb_execution_mode = "off"
myst_enable_extensions = ["dollarmath"]
myst_all_links_external = True
suppress_warnings = ["mystnb.unknown_mime_type"]
napoleon_use_rtype = False
napoleon_custom_sections = [("Raises when made", "Raises"), ("Raises when used", "Raises")]
add_module_names = False
intersphinx_mapping = {"torch": ("https://docs.pytorch.org/docs/stable/", "torch.inv")}
templates_path = ["_templates"]
html_static_path = ["_static"]
html_extra_path = ["extra"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_math_renderer = "mathml"
html_copy_source = html_show_copyright = html_use_index = html_domain_indices = False
html_show_search_summary = False  # it asks for pages with fetch(), which no browser allows in a folder
html_context = {"default_mode": "auto"}
html_theme = "sphinx_book_theme"
html_theme_options = {
    "use_download_button": False,
    "use_fullscreen_button": False,
    "show_toc_level": 2,
    "home_page_in_toc": True,
    "navbar_persistent": [],
    "footer_content_items": [],
    "search_bar_text": "Search: an error message, a symptom …",
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}


def setup(app: Sphinx) -> None:
    """Register the formulas: MathML needs no script, and every browser draws it."""
    app.add_html_math_renderer("mathml", (_formula, None), (_formula, None))


def _formula(translator: Any, node: nodes.Element) -> None:
    tex = re.sub(r"frac(\d)(\d)", r"frac{\1}{\2}", node.astext())  # docutils reads \tfrac12 as a fraction of 12
    translator.body.append(tex2mathml(tex, as_block=isinstance(node, nodes.math_block)))
    raise nodes.SkipNode
