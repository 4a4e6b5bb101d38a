"""The files that a gate leaves for CI: JUnit XML and a Markdown summary, true after every test.

Before the first test the places are tried, and files of an earlier run are removed, so that an old success never stands
for a run that died. After each test both are rewritten, with the tests that were not run yet as errors. A file that
cannot be written later on costs no test; the command then ends with an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.core.atomic_files import refuse_target, write_beside, written_beside
from harness.core.errors import ShatterError, StorageError, UsageError
from harness.report.junit import junit_xml
from harness.report.summary import TestOutcome, markdown


@dataclass(frozen=True, kw_only=True)
class GateFiles:
    """junit, summary: where to write; None: nothing. tests: all names of the campaign, in order."""

    name: str
    tests: Sequence[str]
    junit: Path | None = None
    summary: Path | None = None
    taken: Sequence[Path] = field(default=())
    """Files of the campaign itself, which must not be written over."""

    def prepare(self) -> None:
        """Raise UsageError for places that cannot be written, or are the same; remove what an earlier run left."""
        given = {"--junit": self.junit, "--summary": self.summary}
        places = {option: path for option, path in given.items() if path is not None}
        if len({path.resolve() for path in places.values()}) < len(places):
            raise UsageError(f"--junit and --summary both name {self.junit}; give each a file of its own")
        for option, path in places.items():
            if path.resolve() in {other.resolve() for other in self.taken}:
                raise UsageError(f"{option} names {path}, which the campaign is read from; name another file")
            try:
                refuse_target(path)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.unlink(missing_ok=True)
                with written_beside(path):
                    pass
                path.unlink()
            except StorageError as error:
                raise UsageError(f"{option}: {error}") from error
            except OSError as error:
                raise UsageError(
                    f"{option}: {path} cannot be written ({error.strerror or error}); name a file in a folder that can"
                ) from error

    def write(self, outcomes: Sequence[TestOutcome]) -> list[str]:
        """Write the outcomes so far; returns one sentence for each file that could not be written, which costs neither
        the other file nor a test. Such a file keeps its earlier text, in which the later tests were not run."""
        rest = [
            TestOutcome(name=test, verdict="not run", why="it was not run yet", seconds=0.0)
            for test in self.tests[len(outcomes) :]
        ]
        problems = []
        for path, make in ((self.junit, junit_xml), (self.summary, markdown)):
            if path is not None:
                try:
                    text = make(self.name, [*outcomes, *rest])
                    path.parent.mkdir(parents=True, exist_ok=True)
                    write_beside(path, text)
                except (ShatterError, OSError) as error:
                    problems.append(str(error))
                except Exception as error:
                    problems.append(f"{path} could not be made: {type(error).__name__}: {error}")
        return problems
