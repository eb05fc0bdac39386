"""A script that says, as one line of JSON, what the Python that runs it has.

Run as ``PYTHON probe.py torch numpy ...``; the names are those of the packages to look for. It is run by whatever
Python is found, so it keeps to old syntax and imports nothing that may be missing.
"""

import importlib.util
import json
import os
import sys


def installed_versions(names):
    # type: (list[str]) -> dict[str, str | None]
    """Map each name to its installed version, or to None."""
    try:
        from importlib.metadata import PackageNotFoundError, version
    except ImportError:  # Python 3.7 and older
        return dict.fromkeys(names)
    found = {}  # type: dict[str, str | None]
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def package_folder(name):
    # type: (str) -> str | None
    """Where ``import name`` would come from, or None."""
    spec = importlib.util.find_spec(name)
    return os.path.dirname(spec.origin) if spec is not None and spec.origin else None


def leave_out(folder):
    # type: (str) -> None
    """Take a folder off sys.path."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != folder]


if __name__ == "__main__":
    # A script's own folder comes first on sys.path; when a lesson runs it is not there.
    leave_out(os.path.dirname(os.path.abspath(__file__)))
    print(
        json.dumps(
            {
                "version": list(sys.version_info[:3]),
                "has_pip": importlib.util.find_spec("pip") is not None,
                "hooklab": package_folder("hooklab"),
                "packages": installed_versions(sys.argv[1:]),
            }
        )
    )
