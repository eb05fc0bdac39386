"""`python -m hooklab site OUT`: the course as web pages, made from the stored notebooks without running any of them.

`pages` turns notebooks into pages, `guesses` and `explorers` make what the reader plays with, `reference` the page of
the library; Sphinx, with myst-nb and the book theme, does the rest.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hooklab.course.root import find_root

__all__ = ["build", "main"]

OURS = ".hooklab-site"  # the list of what a build wrote: only these files are replaced by the next one
CONFIGURATION: dict[str, Any] = {
    "project": "PyTorch hooks",
    "html_title": "PyTorch hooks",
    "extensions": ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.intersphinx",
                   "hooklab.course.site.extension"],
    "nb_execution_mode": "off",
    "nb_merge_streams": True,
    "myst_enable_extensions": ["dollarmath"],
    "myst_all_links_external": True,
    "suppress_warnings": ["mystnb.unknown_mime_type"],
    "autodoc_typehints": "signature",
    "autodoc_member_order": "bysource",
    "add_module_names": False,
    "html_theme": "sphinx_book_theme",
    "html_math_renderer": "mathml",
    "html_copy_source": False,
    "html_show_search_summary": False,  # it asks for pages with fetch(), which no browser allows in a folder
    "html_show_copyright": False,
    "html_css_files": ["site.css"],
    "html_js_files": ["site.js"],
    "html_use_index": False,
    "html_domain_indices": False,
    "html_context": {"default_mode": "auto"},
    "html_theme_options": {
        "use_download_button": False,
        "use_fullscreen_button": False,
        "show_toc_level": 2,
        "home_page_in_toc": True,
        "navbar_persistent": [],
        "search_bar_text": "Search: an error message, a symptom …",
        "pygments_light_style": "a11y-high-contrast-light",
        "pygments_dark_style": "a11y-high-contrast-dark",
    },
}  # fmt: skip


def main(argv: list[str]) -> int:
    """Build the site and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hooklab site", description="Build the course as web pages.")
    parser.add_argument("folder", metavar="OUT", help="where to write them; open OUT/index.html in a browser")
    parser.add_argument("--with-solutions", action="store_true", help="show each exercise's solution, folded")
    parser.add_argument("--address", default="", help="where the site will be, for the pictures of links to it")
    options = parser.parse_args(argv)
    folder = Path(options.folder).resolve()
    if folder.exists() and any(folder.iterdir()) and not (folder / OURS).is_file():
        print(f"hooklab: error: {folder} is not empty, and is no site that this command has built", file=sys.stderr)
        return 2
    warnings = build(find_root(), folder, with_solutions=options.with_solutions, address=options.address)
    print(warnings, end="", file=sys.stderr)
    print(f"wrote {folder}: open {folder / 'index.html'}")
    return 1 if warnings else 0


def build(root: Path, folder: Path, *, with_solutions: bool = False, address: str = "") -> str:
    """Build the site of the course in `root` anew in `folder`, and return Sphinx's warnings.

    Args:
        root: the course's folder.
        folder: what an earlier build wrote there is replaced, and everything else stays.
        with_solutions: show the solutions.
        address: where the site will be, ending in a slash; links to it then show a picture.
    """
    import io

    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace

    from hooklab.course.site import explorers, extension, pages, reference

    warnings = io.StringIO()
    lessons = sorted((root / "lessons").glob("*.ipynb"))
    drawn = explorers.drawn(pages.explorers_in(lessons), root)
    made = [
        pages.page(
            one, lambda name: explorers.as_html(name, drawn[name]), root / "solutions" if with_solutions else None
        )
        for one in lessons
    ]
    with tempfile.TemporaryDirectory(prefix="hooklab-site-") as name, docutils_namespace():
        source, out = Path(name) / "source", Path(name) / "out"
        static = source / "static"
        shutil.copytree(Path(__file__).parent / "static", static)
        for explorer, one in drawn.items():
            explorers.write(explorer, one, static / "explorers")
        pages.write(made, source)
        reference.write(source)
        configuration = CONFIGURATION | reference.intersphinx(Path(name)) | {"html_static_path": [str(static)]}
        app = Sphinx(
            str(source), None, str(out), str(Path(name) / "doctrees"), "html", configuration,
            status=None, warning=warnings, freshenv=True,
        )  # fmt: skip
        extension.connect(app, {one.name: one for one in made}, address)
        app.build()
        _finish(out, lessons)
        _put(out, folder)
    return warnings.getvalue()


def _finish(out: Path, lessons: list[Path]) -> None:
    """Add the notebooks to download, and take away what Sphinx needs for itself alone."""
    from hooklab.course.site.pages import NOTEBOOKS

    (out / NOTEBOOKS).mkdir()
    for lesson in lessons:
        shutil.copy(lesson, out / NOTEBOOKS / lesson.name)
    (out / ".nojekyll").touch()  # for GitHub Pages: folders such as _static are part of the site
    for name in (".buildinfo", "objects.inv"):
        (out / name).unlink(missing_ok=True)


def _put(out: Path, folder: Path) -> None:
    """Put a finished site in the place of an earlier one."""
    mark = folder / OURS
    for name in mark.read_text(encoding="utf-8").splitlines() if mark.is_file() else []:
        (folder / name).unlink(missing_ok=True)
    shutil.copytree(out, folder, dirs_exist_ok=True)
    names = sorted(file.relative_to(out).as_posix() for file in out.rglob("*") if file.is_file())
    mark.write_text("\n".join(names), encoding="utf-8")
