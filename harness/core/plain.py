"""Foreign text made safe to show: terminal controls, invisible characters and directional marks are escaped.

Names and values of foreign histories, last lines of containers and file names may hold ANSI and OSC sequences,
directional marks, invisible characters, and lone surrogates. `plain` writes each as its escape
(`\\x1b`, `\\u202e`), so that it is seen and does nothing, in a terminal, in Markdown, HTML and XML alike. Ordinary
characters with a meaning in a format (`<`, `|`, `[`) are left to the code that writes that format.
"""

from __future__ import annotations

import re
from typing import Final

_STEERING: Final = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # C0 and C1: escape sequences begin with one
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # invisible; Arabic letter mark
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # zero width, line ends, directional marks
    "\ufe00-\ufe0f\ufeff\ufff0-\uffff\u3164\uffa0"  # selectors, byte order mark, noncharacters
    "\ud800-\udfff"  # surrogates
    "\U000e0000-\U000e0fff"  # tags
    "]"
)


def plain(text: object, *, keep: str = "") -> str:
    """The text with every control or invisible character written as an escape. keep: those to leave, e.g. `\\n`."""
    return _STEERING.sub(lambda found: found[0] if found[0] in keep else _escape(ord(found[0])), str(text))


def _escape(code: int) -> str:
    named = {9: "\\t", 10: "\\n", 13: "\\r"}.get(code)
    return named or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
