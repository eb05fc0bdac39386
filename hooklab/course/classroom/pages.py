"""The look of the pages: one style sheet for screen and print, light and dark, and escaping for what is a student's."""

from __future__ import annotations

import html
import re

from hooklab.course.classroom.verdicts import STOPPED, Verdict

STATES = ("correct", "not yet", "not attempted", "tampered", "stopped", "not handed in")
# Signs tell as much as colours do: a page may be printed in grey, or read by somebody who sees no red and green.
MARKS = {
    "correct": "✓",
    "not yet": "✗",
    "not attempted": "○",
    "tampered": "⚠",
    "stopped": "■",
    "not handed in": "–",
}
_STYLE = """
:root { color-scheme: light dark; --ink: #222; --soft: #595959; --line: #d0d0d0; --paper: #fff; --code: #f5f5f5;
  --good: #00704f; --open: #9a5b00; --none: #6a6a6a; --alarm: #b03a00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --soft: #b0b0b0; --line: #4a4a4a; --paper: #1b1b1b;
  --code: #282828; --good: #3fc79a; --open: #f0b040; --none: #a0a0a0; --alarm: #ff8a50; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60em;
  margin: 2em auto; padding: 0 1.2em; }
h1 { font-size: 1.6em; line-height: 1.25; } h2 { font-size: 1.25em; margin-top: 2.2em;
  border-top: 1px solid var(--line); padding-top: .9em; } h3 { font-size: 1.05em; margin: 1.4em 0 .3em; }
p { margin: .4em 0; } .soft { color: var(--soft); } a { color: inherit; }
pre, code { font: .88em/1.45 ui-monospace, Consolas, "DejaVu Sans Mono", monospace; }
pre { background: var(--code); border: 1px solid var(--line); border-radius: 4px; padding: .6em .8em; margin: .5em 0;
  white-space: pre-wrap; overflow-wrap: anywhere; }
table { border-collapse: collapse; } th, td { padding: .18em .55em; border-bottom: 1px solid var(--line); }
th { text-align: left; font-weight: 600; } td.state { text-align: center; } .scroll { overflow-x: auto; }
.correct { color: var(--good); } .not-yet { color: var(--open); } .tampered, .stopped { color: var(--alarm); }
.not-attempted, .not-handed-in { color: var(--none); }
.bar { display: inline-block; height: .75em; background: currentColor; border-radius: 2px; }
.bars { display: inline-block; width: 9em; } h4 { font-size: 1em; margin: 1.1em 0 .3em; }
dl { display: grid; grid-template-columns: 5.6em 1fr; margin: .3em 0; } dt { color: var(--soft); }
dd { margin: 0; min-width: 0; overflow-wrap: anywhere; white-space: pre-wrap; }
.told { border-left: 4px solid var(--line); padding-left: .8em; margin: .6em 0; overflow-wrap: anywhere; }
@media print { :root { color-scheme: light; --ink: #000; --soft: #444; --line: #bbb; --paper: #fff; --code: #fff;
    --good: #00543b; --open: #7a4700; --none: #555; --alarm: #8a2d00; }
  body { font-size: 10.5pt; margin: 0; max-width: none; padding: 0; }
  h2, h3, h4 { break-after: avoid; }
  pre, .told, tr { break-inside: avoid; } thead { display: table-header-group; } .scroll { overflow: visible; }
  .bar { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""


def page(title: str, body: str) -> str:
    """Return a whole page that needs nothing else: no script, no other file."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escaped(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def escaped(text: str) -> str:
    """Return a text as HTML that shows it, without characters that turn the direction of what follows."""
    return html.escape("".join(one if one.isprintable() or one in "\n\t" else "�" for one in text))


def with_code(text: str) -> str:
    """Return a text as HTML, with what stands between backquotes as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped(text))


def state(name: str, words: bool = True) -> str:
    """Return an outcome as HTML: its sign, and its words or these as the sign's title."""
    css = name.replace(" ", "-")
    if words:
        return f'<b class="{css}">{MARKS[name]} {escaped(name)}</b>'
    return f'<span class="{css}" title="{escaped(name)}" aria-label="{escaped(name)}">{MARKS[name]}</span>'


def message(verdict: Verdict, without: str = "") -> str:
    """Return what a check said as HTML: what is missing, then each detail, without those of one label."""
    first = verdict.text.split("\n")[0]
    head = first if verdict.state == STOPPED else first.split(": ", 1)[-1]
    rows = "".join(
        f"<dt>{escaped(label)}</dt><dd>{with_code(text)}</dd>" for label, text in details(verdict) if label != without
    )
    return f"<p>{with_code(head)}</p>" + (f"<dl>{rows}</dl>" if rows else "")


def details(verdict: Verdict) -> list[tuple[str, str]]:
    """Return the labelled lines of what a check said, such as ("expected", "a tensor")."""
    pairs = (line.strip().partition(" ") for line in verdict.text.split("\n")[1:])
    return [(label, text.strip()) for label, _, text in pairs]
