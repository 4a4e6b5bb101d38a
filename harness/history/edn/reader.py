"""A streaming reader, and a printer, of the part of EDN that histories use.

Why not a library: `edn_format` from PyPI parses a whole string at once with a generated parser and takes about
a millisecond per operation; a history has millions. This reader yields one top-level form at a time,
whether the file holds one form a line, one large vector, or pretty-printed forms.

Vectors, lists and sets become lists, maps become dicts, keywords and symbols become `Keyword`. A tag
(`#jepsen.history.Op{…}`, `#inst "…"`, `#object[…]`) is read as the form behind it. Ratios and characters stay
text. It does not check that sets and maps have no repeated members. `##NaN` and `##Inf` are refused, and so are forms
nested more than 100 deep, or longer than 64 Mi characters (a string, or one operation).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import IO, Any, Final

_TOKEN: Final = re.compile(
    r"""[\[\](){}]            # delimiters
    | "(?:[^"\\]|\\.)*"?      # string; without the last quote it is not complete
    | ;[^\n]*                 # comment
    | \#[{_]                  # set, discard
    | \\(?:[a-zA-Z0-9]+|.)    # character
    | [^\s,\[\](){}";\\]+     # everything else: numbers, keywords, symbols, tags
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_SPECIAL: Final = frozenset('[](){}#;"')
_OPENING: Final = frozenset("[({")
_CLOSING: Final = frozenset("])}")
_SET: Final = "#{"
_SKIP: Final = "#_"
_CHUNK: Final = 1 << 18
_CACHE: Final = 10_000
_DEPTH: Final = 100
MOST_CHARACTERS: Final = 1 << 26
_MISSING: Final = object()
_DISCARD: Final = object()
_CLOSERS: Final = {"[": "]", "(": ")", "{": "}", "#{": "}"}


class Keyword(str):
    """A keyword (with its colon) or a symbol: a string that is not a string literal."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The text without the colon."""
        return self.removeprefix(":")


class EdnError(Exception):
    """Text that is not EDN. `line`: where, counted from 1."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line


class UnreadableEdnError(EdnError):
    """EDN that this reader does not accept."""


class EdnReader:
    """Iterates over the top-level forms of a text; the members of a top-level vector or list count as such.

    Iterating raises EdnError. `line`: the line at which the form last returned ends (found only when asked for).
    on_comment: called with each comment, semicolons included.
    """

    def __init__(self, source: IO[str], *, on_comment: Callable[[str], None] | None = None) -> None:
        self._source = source
        self._on_comment = on_comment
        self._stack: list[tuple[str, list[Any]]] = []
        self._current: list[Any] = []
        self._opened = ""  # delimiter of the list under way
        self._outer = ""  # delimiter of a top-level vector or list whose members are the forms
        self._atoms: dict[str, Any] = {"nil": None, "true": True, "false": False}
        self._discards = False  # whether #_ was ever met
        self._text = ""
        self._first_line = 1  # of self._text
        self._token = 0  # number of the token under way in self._text
        self._yielded = False  # whether a form ended in self._text

    @property
    def line(self) -> int:
        """The line of the token that was read last, from 1."""
        end = 0
        for number, match in enumerate(_TOKEN.finditer(self._text)):
            end = match.end()
            if number >= self._token:
                break
        return self._first_line + self._text.count("\n", 0, end)

    def __iter__(self) -> Iterator[Any]:
        rest, pending = "", 0
        while chunk := self._source.read(max(_CHUNK, len(rest))):  # a long string is not rescanned for every chunk
            rest += chunk
            if cut := _cut(rest):
                tokens, used = _complete(rest[:cut])
                self._text = rest[:used]
                self._yielded = False
                yield from self._forms(tokens)
                self._first_line += rest.count("\n", 0, used)
                rest = rest[used:]
                pending = used if self._yielded else pending + used
            if len(rest) + (pending if self._stack else 0) > MOST_CHARACTERS:
                raise UnreadableEdnError(self._first_line, f"one form has more than {MOST_CHARACTERS:,} characters")
        self._text = rest
        tokens = _TOKEN.findall(rest)
        yield from self._forms(tokens)
        self._token = len(tokens)
        if self._stack or self._outer:
            raise EdnError(self.line, f"{self._opened or self._outer} is never closed")
        if self._current:
            raise EdnError(self.line, "nothing follows #_")

    def _forms(self, tokens: list[str]) -> Iterator[Any]:
        """The forms that end among these tokens. Integers, atoms already seen and strings cost no call here."""
        current, stack, atoms = self._current, self._stack, self._atoms
        form: Any
        for number, token in enumerate(tokens):
            first = token[0]
            if first not in _SPECIAL:
                if token.isdecimal():
                    try:
                        form = int(token)
                    except ValueError:  # Python's limit on digits
                        raise self._unreadable(number, f"an integer has {len(token)} digits") from None
                else:
                    form = atoms.get(token, _MISSING)
                    if form is _MISSING:
                        form = self._new_atom(token)
            elif first in _CLOSING:
                self._token = number
                if not stack:
                    self._close_outer(first)
                    continue
                form = self._close(first, current)
                self._opened, current = stack.pop()
            elif first in _OPENING or token == _SET:
                if not stack and not self._outer and first in "[(":
                    self._outer = token
                    continue
                if len(stack) == _DEPTH:
                    raise self._unreadable(number, f"expected forms nested at most {_DEPTH} deep, found more")
                stack.append((self._opened, current))
                self._opened, current = token, []
                continue
            elif first in ";#":
                self._comment_or_tag(token, number, current)
                continue
            else:
                if not _closed(token):
                    self._token = number
                    raise EdnError(self.line, "a string has no end")
                form = _unescape(token[1:-1]) if "\\" in token else token[1:-1]
            if stack:
                current.append(form)
            elif current:
                current.pop()  # a #_ before it
            else:
                self._current, self._token, self._yielded = current, number, True
                yield form
        self._current = current

    def _unreadable(self, number: int, text: str) -> UnreadableEdnError:
        self._token = number
        return UnreadableEdnError(self.line, text)

    def _new_atom(self, token: str) -> Any:
        form = _atom(token)
        if len(self._atoms) < _CACHE:
            self._atoms[token] = form
        return form

    def _comment_or_tag(self, token: str, number: int, current: list[Any]) -> None:
        """A comment, a `#_` or a tag: none of them is a form."""
        if token[0] == ";":
            if self._on_comment is not None:
                self._on_comment(token)
        elif token == _SKIP:
            self._discards = True
            current.append(_DISCARD)
        elif token.startswith("##"):
            raise self._unreadable(number, f"expected a number, a string or nil, found {token}")

    def _close_outer(self, closer: str) -> None:
        if closer != _CLOSERS.get(self._outer):
            raise EdnError(self.line, f"{closer} closes nothing")
        self._outer = ""

    def _close(self, closer: str, form: list[Any]) -> Any:
        if closer != _CLOSERS[self._opened]:
            raise EdnError(self.line, f"{self._opened} is closed by {closer}")
        if self._discards and any(member is _DISCARD for member in form):
            form = self._without_discarded(form)
        if self._opened != "{":
            return form
        if len(form) % 2:
            raise EdnError(self.line, "a map has a key without a value")
        try:
            return dict(zip(form[::2], form[1::2], strict=True))
        except TypeError:  # a key that is a vector or a map
            return {freeze(k): v for k, v in zip(form[::2], form[1::2], strict=True)}

    def _without_discarded(self, form: list[Any]) -> list[Any]:
        kept: list[Any] = []
        pending = 0
        for member in form:
            if member is _DISCARD:
                pending += 1
            elif pending:
                pending -= 1
            else:
                kept.append(member)
        if pending:
            raise EdnError(self.line, "nothing follows #_")
        return kept


def _cut(text: str) -> int:
    """Where to end a piece so that nothing but a string or a comment is cut in two."""
    at = text.rfind("\n")
    if at < 0:
        at = max(text.rfind(" "), text.rfind("}"), text.rfind(","))
    return at + 1


def _complete(text: str) -> tuple[list[str], int]:
    """The tokens that are surely complete, and how many characters they take up."""
    tokens = _TOKEN.findall(text)
    if tokens:
        last = tokens[-1]
        if (last[0] == '"' and not _closed(last)) or (last[0] == ";" and text[-1] != "\n"):
            return tokens[:-1], text.rindex(last)
        if last in ("#_", "\\"):
            return tokens[:-1], text.rindex(last)
    return tokens, len(text)


def _closed(token: str) -> bool:
    if len(token) < 2 or token[-1] != '"':
        return False
    body = token[1:-1]
    return (len(body) - len(body.rstrip("\\"))) % 2 == 0


def _unescape(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] == "u" and len(code) == 5:
            return chr(int(code[1:], 16))
        if code.isdigit():
            return chr(int(code, 8))
        return _ESCAPES.get(code, code)

    text = _ESCAPE.sub(one, text)
    # Java prints characters beyond the BMP as two \u escapes: join the halves
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _atom(token: str) -> Any:
    first = token[0]
    if first == ":":
        return Keyword(token)
    if first in "+-0123456789":
        try:
            return int(token.removesuffix("N")) if "_" not in token else Keyword(token)
        except ValueError:
            pass
        try:
            return float(token.removesuffix("M"))
        except ValueError:
            pass
    if first == "\\":
        return {"newline": "\n", "space": " ", "tab": "\t", "return": "\r"}.get(token[1:], token[1:])
    return Keyword(token)


def freeze(form: Any) -> Any:
    """A form that can be a key of a dict: lists become tuples, maps tuples of pairs."""
    if isinstance(form, list):
        return tuple(freeze(member) for member in form)
    if isinstance(form, dict):
        return tuple((freeze(k), freeze(v)) for k, v in form.items())
    return form


def to_edn(form: Any) -> str:
    """Print a form. Tuples print as vectors, floats as Clojure reads them."""
    if form is None:
        return "nil"
    if form is True or form is False:
        return "true" if form else "false"
    if isinstance(form, Keyword):
        return str(form)
    if isinstance(form, str):
        return quote(form)
    if isinstance(form, dict):
        return "{" + ", ".join(f"{to_edn(k)} {to_edn(v)}" for k, v in form.items()) + "}"
    if isinstance(form, list | tuple):
        return "[" + " ".join(map(to_edn, form)) + "]"
    return repr(form)


def quote(text: str) -> str:
    """A string literal."""
    if text.isalnum() and text.isascii():
        return f'"{text}"'
    return '"' + _NEEDS_ESCAPE.sub(lambda m: _QUOTED.get(m[0]) or f"\\u{ord(m[0]):04x}", text) + '"'


_NEEDS_ESCAPE: Final = re.compile(r'["\\\x00-\x1f\x7f\x85\u2028\u2029]')
_QUOTED: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"}
