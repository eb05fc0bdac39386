"""`python -m hooklab site OUT`: the course as web pages, made from the stored notebooks without running any of them.

`pages` turns notebooks into pages; `guesses` and `explorers` make what the reader plays with; Sphinx, with myst-nb and
the book theme, does the rest. Its settings, styles and scripts, and the library's page, are in `source/`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from hooklab.course.root import find_root

OURS = ".hooklab-site"  # the list of what a build wrote: only these files are replaced by the next one


def main(argv: list[str]) -> int:
    """Build the site and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hooklab site", description="Build the course as web pages.")
    parser.add_argument("folder", metavar="OUT", help="where to write them; open OUT/index.html in a browser")
    parser.add_argument("--with-solutions", action="store_true", help="show each exercise's solution, folded")
    parser.add_argument("--address", default="", help="where the site will be, for the pictures of links to it")
    options = parser.parse_args(argv)
    folder = Path(options.folder).resolve()
    if folder.exists() and any(folder.iterdir()) and not (folder / OURS).is_file():
        print(f"hooklab: error: {folder} is not empty, and this command did not build it", file=sys.stderr)
        return 2
    code = build(find_root(), folder, with_solutions=options.with_solutions, address=options.address)
    print(f"wrote {folder}: open {folder / 'index.html'}")
    return code


def build(root: Path, folder: Path, *, with_solutions: bool = False, address: str = "") -> int:
    """Build the site of the course in `root` and return Sphinx's exit code: 0 without warnings.

    In `folder`, what an earlier build wrote is replaced, and everything else stays. With an `address`, where the site
    will be, ending in a slash, links to it show a picture.
    """
    from hooklab.course.site import pages

    with tempfile.TemporaryDirectory(prefix="hooklab-site-") as name:
        source, out, trees = (str(Path(name) / part) for part in ("source", "out", "trees"))
        shutil.copytree(Path(__file__).parent / "source", source)
        put_explorers = pages.write(root, Path(source), with_solutions)
        from sphinx.cmd.build import build_main

        code = build_main(["-q", "-W", "--keep-going", "-d", trees, "-A", f"address={address}", source, out])
        put_explorers(Path(out))
        _put(Path(out), folder)
    return code


def _put(out: Path, folder: Path) -> None:
    """Replace an earlier site with the finished one."""
    mark = folder / OURS
    for name in mark.read_text(encoding="utf-8").splitlines() if mark.is_file() else []:
        (folder / name).unlink(missing_ok=True)
    shutil.copytree(out, folder, dirs_exist_ok=True)
    names = sorted(file.relative_to(out).as_posix() for file in out.rglob("*") if file.is_file())
    mark.write_text("\n".join(names), encoding="utf-8")
