"""skip_url_grammars: a second less for every process that imports nbformat or jupytext."""

from __future__ import annotations

import sys


def skip_url_grammars() -> None:
    """Keep jsonschema, which nbformat imports, from building some forty grammars of internationalised URLs.

    They are optional there, serve only schemas that ask for the format "iri", and cost more than all other imports of
    `build --check` together. A notebook's schema does not ask for them.
    """
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # None makes an import fail
