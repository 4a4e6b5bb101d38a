"""Running tests one after another for a command: images, the run, its check, and what a person sees meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console
from rich.text import Text

from harness.cli.interrupted_checks import cut_short
from harness.cli.judging import Spark, check_run, own_fault, show_softly
from harness.core.errors import EXIT_UNKNOWN, ImageError, ShatterError
from harness.core.plain import plain
from harness.core.progress import RichDisplay, phase
from harness.core.signals import Interrupts
from harness.report.html import report_softly
from harness.report.summary import TestOutcome, campaign_exit_code

if TYPE_CHECKING:
    from docker import DockerClient

    from harness.clusters.docker.image_build import Progress
    from harness.clusters.docker.images import BrokerImage, ImageSet
    from harness.run.plan import RunPlan
    from harness.run.runner import RunResult

T = TypeVar("T")
Outcome = Callable[..., TestOutcome]
"""(verdict, why, …) → the outcome of the test that is under way."""


class Bench:
    """Shared by the tests of one command: console, images, Spark, signals."""

    def __init__(self, *, out: Path, master: str, keep: bool, console: Console) -> None:
        self.out, self.keep, self.console = out, keep, console
        self.spark = Spark(master)
        self.interrupts = Interrupts()
        self._images: dict[tuple[str | None, ...], ImageSet] = {}
        self._looked_into: dict[str, bool] = {}  # image → whether its brokers have the mirror

    def images(
        self, kafka_image: str | None, *, source_image: str | None = None, destination_image: str | None = None
    ) -> ImageSet:
        """The images of a run, built or pulled when they are missing."""
        from harness.clusters.docker.images import ensure_images

        chosen = (kafka_image, source_image, destination_image)
        if chosen not in self._images:
            self._images[chosen] = self._made(
                lambda client, progress: ensure_images(
                    client,
                    kafka_image=kafka_image,
                    source_image=source_image,
                    destination_image=destination_image,
                    on_progress=progress,
                ),
                lambda found: f"Kafka {found.versions}",
            )
        return self._images[chosen]

    def release_image(self, archive: Path) -> BrokerImage:
        """The image of a release archive of Kafka, built when it is missing."""
        from harness.clusters.docker.images import release_image

        return self._made(
            lambda client, progress: release_image(client, archive, on_progress=progress),
            lambda found: f"Kafka {found.kafka_version}",
        )

    def _made(self, make: Callable[[DockerClient, Progress], T], words: Callable[[T], str]) -> T:
        """What `make` returns, with its progress shown and the result in words."""
        from harness.clusters.docker.clients import connect

        display = RichDisplay(self.console)
        tell = display.say if self.console.is_terminal else display.note  # a log keeps one line per step

        def progress(image: str, line: str) -> None:
            tell(f"{image}: {line}"[:160])

        client = connect()
        try:
            with phase(display, "images"):
                found = make(client, progress)
                display.say(words(found))
            return found
        finally:
            client.close()

    def test(self, plan: RunPlan, *, cut: Callable[[TestOutcome], int] = lambda _outcome: EXIT_UNKNOWN) -> TestOutcome:
        """Run, judge and report one test. An error of the run is an outcome, not an exception.

        cut: gets the outcome when a signal cuts the check short and this process is about to end; gives the exit code.
        """
        began = time.monotonic()
        title = Text.assemble((plain(plan.spec.name), "bold"), f"  contract {plan.contract}  seed {plan.spec.seed}")
        self.console.rule(title, align="left")
        display = RichDisplay(self.console)

        def outcome(verdict: str, why: str, **more: Any) -> TestOutcome:
            return TestOutcome(
                name=plan.spec.name,
                verdict=verdict,
                why=why,
                contract=plan.contract,
                seconds=time.monotonic() - began,
                **more,
            )

        run = self._run(plan, display, outcome)
        if isinstance(run, TestOutcome):
            return run
        judged = self._judge(run, display, outcome, cut)
        if judged.results is None:
            return judged
        with cut_short(f"the report of {run.folder}", last=lambda: cut(judged)):
            report = report_softly(run.folder, say=display.note)
            show_softly(self.console, judged.results, run=run.folder, report=report)
        return replace(judged, report=report, seconds=time.monotonic() - began)

    def _run(self, plan: RunPlan, display: RichDisplay, outcome: Outcome) -> RunResult | TestOutcome:
        """The run that is to be judged, or the outcome of one that is not."""
        from harness.run.runner import run_test

        try:
            with self.interrupts.exposed("ending before the test begins"):
                images = self.images(
                    plan.spec.kafka_image,
                    source_image=plan.spec.source_image,
                    destination_image=plan.spec.destination_image,
                )
                self._check_brokers(plan, images)
            run = run_test(
                plan, images=images, out=self.out, display=display, interrupts=self.interrupts, keep=self.keep
            )
        except KeyboardInterrupt:
            return outcome("unknown", "the test was interrupted before it began")
        except ShatterError as error:
            return outcome("failed", str(error))
        except Exception as error:
            return outcome("failed", own_fault(error))
        if run.status == "interrupted":
            return outcome("unknown", f"the run was interrupted: {run.why}; {_judges(run)}", run=run.folder)
        if self.interrupts.count:
            ended = run.why or "the run came to its end, and the command was interrupted before it was judged"
            return outcome("unknown" if run.error is None else "failed", f"{ended}; {_judges(run)}", run=run.folder)
        return run

    def _check_brokers(self, plan: RunPlan, images: ImageSet) -> None:
        """Raises: ImageError naming the image and the fix when the mirror is part of brokers that do not have it."""
        from harness.clusters.docker.clients import connect
        from harness.clusters.docker.image_contents import client_library_has
        from harness.run.plan import images_of_mirror

        for image in images_of_mirror(plan, images):
            if image not in self._looked_into:
                with closing(connect()) as client:
                    self._looked_into[image] = client_library_has(client, image, plan.mirror.class_in_brokers)
            if not self._looked_into[image]:
                raise ImageError(
                    f"image {image} holds stock brokers: mirror {plan.mirror.name} needs a build of Kafka that has "
                    f"{plan.mirror.class_in_brokers.rpartition('/')[2]}; name its image with --kafka-image, "
                    "`shatter images --kafka-tgz FILE` makes one of a release archive"
                )

    def _judge(
        self, run: RunResult, display: RichDisplay, outcome: Outcome, cut: Callable[[TestOutcome], int]
    ) -> TestOutcome:
        """Check a run; the outcome has results unless the check failed."""
        interrupted = outcome("unknown", f"the check was interrupted; {_judges(run)}", run=run.folder)
        try:
            with cut_short(f"the check of {run.folder}", last=lambda: cut(interrupted)), phase(display, "check"):
                results = check_run(run.folder, contract=None, spark=self.spark())
        except ShatterError as error:
            self.spark.forget()
            why = f"{run.why}; and then: {error}" if run.why else str(error)
            return outcome("failed", why, run=run.folder)
        except Exception as error:
            self.spark.forget()
            return outcome("failed", f"the check ended with {own_fault(error)}; {_judges(run)}", run=run.folder)
        verdict, why = results.verdict, results.why
        if run.error is not None and verdict != "invalid" and not run.timed_out:
            verdict, why = "failed", run.why
        return outcome(verdict, why, run=run.folder, results=results)


def _judges(run: RunResult) -> str:
    return f"`shatter check {run.folder}` judges what was recorded"


def run_all(
    plans: Sequence[RunPlan],
    *,
    out: Path,
    keep: bool,
    master: str,
    console: Console,
    after: Callable[[Sequence[TestOutcome]], None] = lambda _outcomes: None,
    cut: Callable[[Sequence[TestOutcome]], int] = campaign_exit_code,
) -> list[TestOutcome]:
    """Run tests one after the other. after: called with all outcomes so far, before the first test and after each.

    cut: called with them all when a signal cuts a check short, just before this process ends; gives the exit code.
    Raises: UsageError, before the first test, for one whose mirror needs an image that none was named for.
    """
    from harness.run.plan import check_images

    for plan in plans:
        check_images(plan)
    outcomes: list[TestOutcome] = []

    def rest(begin: int) -> list[TestOutcome]:
        why = "the campaign was interrupted"
        return [TestOutcome(name=p.spec.name, verdict="not run", why=why, seconds=0.0) for p in plans[begin:]]

    def cut_at(one: TestOutcome) -> int:
        return cut([*outcomes, one, *rest(len(outcomes) + 1)])

    after(outcomes)
    bench = Bench(out=out, master=master, keep=keep, console=console)
    with bench.interrupts.installed():
        try:
            for plan in plans:
                outcomes.append(bench.test(plan, cut=cut_at))
                interrupted = bench.interrupts.count > 0
                outcomes += rest(len(outcomes)) if interrupted else []
                after(outcomes)
                if interrupted:
                    break
        finally:
            bench.spark.end()
    return outcomes
