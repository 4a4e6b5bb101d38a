"""Progress shown while a test runs: one line per phase, a bar where its length is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from harness.core.plain import plain


class Display(Protocol):
    """Shows one phase after the other."""

    def begin(self, title: str, *, seconds: float | None = None) -> None:
        """Start a phase; `seconds` draws a bar over that time."""
        ...

    def say(self, text: str) -> None:
        """Replace the phase's detail."""
        ...

    def note(self, text: str) -> None:
        """Print a line that stays."""
        ...

    def end(self, *, ok: bool = True) -> None:
        """The phase is over."""
        ...


class RichDisplay:
    """A live bar on a terminal, plain lines elsewhere."""

    def __init__(self, console: Console, *, now: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._now = now
        self._live = console.is_terminal
        self._bars: Progress | None = None
        self._task: TaskID | None = None
        self._title = ""
        self._detail = ""
        self._began = 0.0
        self._seconds: float | None = None

    def begin(self, title: str, *, seconds: float | None = None) -> None:
        """Start a phase, ending the one under way."""
        self.end()
        self._title, self._detail, self._began, self._seconds = title, "", self._now(), seconds
        if self._live:
            self._bars = Progress(
                SpinnerColumn(),
                TextColumn("{task.description:<12}"),
                BarColumn(bar_width=24),
                TimeElapsedColumn(),
                TextColumn("{task.fields[detail]}"),
                console=self._console,
                transient=True,
            )
            self._task = self._bars.add_task(title, total=seconds, detail="")
            self._bars.start()

    def say(self, text: str) -> None:
        """Replace the detail and move the bar."""
        self._detail = text = plain(text)
        if self._bars is not None and self._task is not None:
            done = min(self._now() - self._began, self._seconds) if self._seconds else 0.0
            self._bars.update(self._task, completed=done, detail=text)

    def note(self, text: str) -> None:
        """Print a line that stays above the bar."""
        self._console.print(f"    {plain(text)}", highlight=False, markup=False, soft_wrap=True)

    def end(self, *, ok: bool = True) -> None:
        """Close the bar and leave one line with the time the phase took."""
        if not self._title:
            return
        if self._bars is not None:
            self._bars.stop()
            self._bars = self._task = None
        mark = "[green]✓[/]" if ok else "[red]✗[/]"
        took = self._now() - self._began
        self._console.print(f"  {mark} {self._title:<12} {took:6.1f} s  ", end="", highlight=False)
        self._console.print(self._detail, highlight=False, markup=False, soft_wrap=True)
        self._title = ""


@contextmanager
def phase(display: Display, title: str, *, seconds: float | None = None) -> Iterator[None]:
    """One phase of the display; marked as failed when it raises."""
    display.begin(title, seconds=seconds)
    try:
        yield
    except BaseException:
        display.end(ok=False)
        raise
    display.end()
