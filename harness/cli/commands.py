"""The commands, put together from the other packages. A command's function returns the exit code."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.cli.gate_files import GateFiles
from harness.cli.interrupted_checks import cut_short
from harness.core import contracts
from harness.core.atomic_files import write_beside
from harness.core.errors import EXIT_FAILED, EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID, ShatterError, UsageError
from harness.core.plain import plain
from harness.core.progress import RichDisplay, phase
from harness.core.remains import ready_results, remains, remove
from harness.core.signals import Interrupts, tell
from harness.core.testspec import TestSpec, parse_spec
from harness.report.html import report_softly
from harness.report.results import Results, load_results
from harness.report.summary import TestOutcome, campaign_exit_code, table
from harness.report.terminal import print_results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from harness.clusters.docker.images import ImageSet
    from harness.run.plan import Plan


class Spark:
    """One Spark session for all checks of a command, made at the first one."""

    def __init__(self, master: str) -> None:
        self._master = master
        self._session: SparkSession | None = None

    def __call__(self) -> SparkSession:
        """The session; a new one where the JVM of the last has died."""
        from checkers.spark.session import jvm_died, spark_session

        if self._session is not None and jvm_died():
            self.forget()
        if self._session is None:
            self._session = spark_session(master=self._master)
        return self._session

    def close(self) -> None:
        """Stop it."""
        session, self._session = self._session, None
        if session is not None:
            session.stop()

    def end(self) -> None:
        """Stop it; an error while stopping is ignored, because all results are printed by then."""
        with suppress(Exception):
            self.close()

    def forget(self) -> None:
        """Give up the session, whose JVM may have died: the next check gets a new one."""
        from checkers.spark.session import forget_dead_jvm

        self.end()
        forget_dead_jvm()


class Bench:
    """Shared by the tests of one command: console, images, Spark, signals."""

    def __init__(self, *, out: Path, master: str, keep: bool, console: Console) -> None:
        self.out, self.keep, self.console = out, keep, console
        self.spark = Spark(master)
        self.interrupts = Interrupts()
        self._images: dict[str | None, ImageSet] = {}

    def images(self, kafka_image: str | None) -> ImageSet:
        """The images of a run, built or pulled when they are missing."""
        from harness.clusters.docker.clients import connect
        from harness.clusters.docker.images import ensure_images

        if kafka_image not in self._images:
            display = RichDisplay(self.console)

            tell = display.say if self.console.is_terminal else display.note  # a log keeps one line per step

            def progress(image: str, line: str) -> None:
                tell(f"{image}: {line}"[:160])

            client = connect()
            try:
                with phase(display, "images"):
                    found = ensure_images(client, kafka_image=kafka_image, on_progress=progress)
                    display.say(f"Kafka {found.kafka_version}")
                self._images[kafka_image] = found
            finally:
                client.close()
        return self._images[kafka_image]

    def test(self, plan: Plan, *, cut: Callable[[TestOutcome], int] = lambda _outcome: EXIT_UNKNOWN) -> TestOutcome:
        """Run, judge and report one test. An error of the run is an outcome, not an exception.

        cut: gets the outcome when a signal cuts the check short and this process is about to end; gives the exit code.
        """
        from harness.run.runner import run_test

        spec, began = plan.spec, time.monotonic()
        title = Text.assemble((plain(spec.name), "bold"), f"  contract {plan.contract}  seed {spec.seed}")
        self.console.rule(title, align="left")
        display = RichDisplay(self.console)

        def outcome(verdict: str, why: str, **more: Any) -> TestOutcome:
            return TestOutcome(
                name=spec.name,
                verdict=verdict,
                why=why,
                contract=plan.contract,
                seconds=time.monotonic() - began,
                **more,
            )

        try:
            with self.interrupts.exposed("ending before the test begins"):
                images = self.images(spec.kafka_image)
            run = run_test(
                plan, images=images, out=self.out, display=display, interrupts=self.interrupts, keep=self.keep
            )
        except KeyboardInterrupt:
            return outcome("unknown", "the test was interrupted before it began")
        except ShatterError as error:
            return outcome("failed", str(error))
        except Exception as error:
            return outcome("failed", _own_fault(error))
        judges = f"`shatter check {run.folder}` judges what was recorded"
        if run.status == "interrupted":
            return outcome("unknown", f"the run was interrupted: {run.why}; {judges}", run=run.folder)
        if self.interrupts.count:
            ended = run.why or "the run came to its end, and the command was interrupted before it was judged"
            return outcome("unknown" if run.error is None else "failed", f"{ended}; {judges}", run=run.folder)
        interrupted = outcome("unknown", f"the check was interrupted; {judges}", run=run.folder)
        try:
            with cut_short(f"the check of {run.folder}", last=lambda: cut(interrupted)), phase(display, "check"):
                results = check_run(run.folder, contract=None, spark=self.spark())
        except ShatterError as error:
            self.spark.forget()
            why = f"{run.why}; and then: {error}" if run.why else str(error)
            return outcome("failed", why, run=run.folder)
        except Exception as error:
            self.spark.forget()
            return outcome("failed", f"the check ended with {_own_fault(error)}; {judges}", run=run.folder)
        verdict, why = results.verdict, results.why
        if run.error is not None and verdict != "invalid" and not run.timed_out:
            verdict, why = "failed", run.why
        judged = outcome(verdict, why, run=run.folder, results=results)
        with cut_short(f"the report of {run.folder}", last=lambda: cut(judged)):
            report = report_softly(run.folder, say=display.note)
            _show_softly(self.console, results, run=run.folder, report=report)
        return replace(judged, report=report, seconds=time.monotonic() - began)


def _own_fault(error: Exception) -> str:
    told = (str(error).strip().splitlines() or ["no reason given"])[0]
    return f"{type(error).__name__}: {told[:300]}"


def _show_softly(console: Console, results: Results, *, run: Path, report: Path | None) -> None:
    """Print a verdict. An error while printing changes nothing about the verdict."""
    try:
        print_results(console, results, run=run, report=report)
    except Exception as error:
        console.print(f"the verdict is {results.verdict}, and cannot be shown: {_own_fault(error)}", markup=False)


def check_run(folder: Path, *, contract: str | None, spark: SparkSession) -> Results:
    """Decode the evidence if that is still to be done, judge, store results.json, and return it."""
    from checkers.judge.judge import judge
    from checkers.spark.session import living_jvm
    from harness.evidence.decode import decode_run, needs_decoding

    with living_jvm(f"the check of {folder}"):
        if needs_decoding(folder):
            decode_run(spark, folder)
        judge(folder, contract, spark)
    return load_results(folder)


def run_one(spec: TestSpec, *, out: Path, keep: bool, master: str, as_json: bool) -> int:
    """`shatter run`."""
    from harness.run.plan import make_plan

    return _run_plan(make_plan(spec), out=out, keep=keep, master=master, as_json=as_json)


def _run_plan(plan: Plan, *, out: Path, keep: bool, master: str, as_json: bool) -> int:
    def cut(outcomes: Sequence[TestOutcome]) -> int:  # within a signal's handler
        for one in outcomes:
            tell(f"{one.verdict}: {plain(one.why)}")
        return campaign_exit_code(outcomes)

    outcomes = _run_all([plan], out=out, keep=keep, master=master, console=Console(stderr=as_json), cut=cut)
    outcome = outcomes[0]
    if as_json and outcome.results is not None:
        print_json(outcome.results.raw)
    if outcome.verdict == "failed":
        raise ShatterError(f"{outcome.why}{_kept(outcome)}")
    if outcome.results is None:
        Console(stderr=True).print(f"unknown: {outcome.why}", style="yellow", markup=False, soft_wrap=True)
        return EXIT_UNKNOWN
    return outcome.results.exit_code


def _kept(outcome: TestOutcome) -> str:
    if outcome.run is None or "`shatter check " in outcome.why:
        return ""
    return f"; what was recorded is in {outcome.run}, and `shatter check {outcome.run}` judges it"


def _run_all(
    plans: Sequence[Plan],
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
    """
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


def run_campaign(
    file: str,
    *,
    out: Path,
    master: str,
    kafka_image: str | None,
    junit: Path | None = None,
    summary: Path | None = None,
) -> int:
    """`shatter campaign` and `shatter gate`. Every test is checked before the first one starts."""
    from harness.run.campaign import load_campaign
    from harness.run.plan import make_plan

    campaign = load_campaign(file)
    specs = campaign.tests
    if kafka_image is not None:
        specs = tuple(spec.model_copy(update={"kafka_image": kafka_image}) for spec in specs)
    plans = [make_plan(spec, given={campaign.where: campaign.text}) for spec in specs]
    names = [plan.spec.name for plan in plans]
    files = GateFiles(name=campaign.name, tests=names, junit=junit, summary=summary, taken=[Path(file)])
    files.prepare()
    console = Console()
    problems: list[str] = []

    def store(outcomes: Sequence[TestOutcome]) -> None:
        problems[:] = files.write(outcomes)
        for problem in problems:
            console.print(f"warning: {plain(problem)}", style="yellow", markup=False, soft_wrap=True)

    def cut(outcomes: Sequence[TestOutcome]) -> int:  # within a signal's handler
        problems[:] = files.write(outcomes)
        for line in (*_in_lines(table(campaign.name, outcomes), console.width), *problems):
            tell(line)
        return gate_exit_code(outcomes, problems)

    outcomes = _run_all(plans, out=out, keep=False, master=master, console=console, after=store, cut=cut)
    console.print()
    console.print(table(campaign.name, outcomes))
    for what, path in (("JUnit XML ", junit), ("summary   ", summary)):
        if path is not None:
            console.print(f"{what} {path}", highlight=False, soft_wrap=True, markup=False)
    for problem in problems:
        Console(stderr=True).print(f"error: {plain(problem)}", style="red", markup=False, soft_wrap=True)
    return gate_exit_code(outcomes, problems)


def gate_exit_code(outcomes: Sequence[TestOutcome], problems: Sequence[str]) -> int:
    """The worst of the tests; a gate file that could not be written is a program failure, but hides no invalid test."""
    code = campaign_exit_code(outcomes)
    return EXIT_FAILED if problems and code != EXIT_INVALID else code


def _in_lines(table: Table, width: int) -> list[str]:
    """A table as plain text, without the console, which may be printing."""
    page = Console(file=io.StringIO(), width=width)
    with page.capture() as captured:
        page.print(table)
    return captured.get().splitlines()


def check_path(path: Path, *, contract: str | None, master: str, as_json: bool, out: Path | None) -> int:
    """`shatter check`: a run's folder, or a history, whose tables and report stay in `out`, if given.

    Run it in `harness.cli.interrupted_checks.cut_short`, and a signal ends it within seconds.
    """
    from harness.history.imports import as_run_folder
    from harness.history.runfile import read_meta

    if contract is not None:
        contracts.load(contract)  # before anything is imported or started
    console = Console(stderr=as_json)
    spark = Spark(master)
    with closing(spark), as_run_folder(path, keep=out) as folder:
        read_meta(folder)  # before Spark is started for a folder that is not a run
        ready_results(folder)
        display = RichDisplay(console)
        with phase(display, "check"):
            results = check_run(folder, contract=contract, spark=spark())
        lasts = path.is_dir() or out is not None
        report = report_softly(folder, say=display.note) if lasts else None
        _show_softly(console, results, run=folder if lasts else path, report=report)
    if as_json:
        print_json(results.raw)
    return results.exit_code


def show_claims(names: Sequence[str], *, out: Path, run: bool, write: Path | None, master: str) -> int:
    """`shatter claims`. Every missing test is checked before the first one starts."""
    from harness.report import scoreboard_page as page
    from harness.report.scoreboard import findings, load_claims, missing, named, publish, stored_results
    from harness.run.plan import make_plan

    claims = named(load_claims(), names)
    unjudged: list[TestOutcome] = []
    if run:
        plans = [make_plan(spec) for spec in missing(claims, stored_results(out))]
        unjudged = [o for o in _run_all(plans, out=out, keep=False, master=master, console=Console()) if not o.results]
    stored = stored_results(out)
    board = [(claim, findings(claim, stored)) for claim in claims]
    console = Console()
    shown = Table(expand=False, show_edge=False, pad_edge=False)
    for column in page.HEAD:
        shown.add_column(column, overflow="fold")
    for claim, found in board:
        for one in found:
            shown.add_row(*page.row(claim, one))
    console.print(shown)
    if write is not None:  # the pages always show every claim
        every = load_claims()
        whole = [(claim, findings(claim, stored)) for claim in every]
        write.mkdir(parents=True, exist_ok=True)
        write_beside(write / "claims.md", page.markdown(whole))
        write_beside(write / "claims.json", publish(stored, every))
        write_beside(write / "claims.html", page.html(whole))
        console.print(f"written to {write}", highlight=False, markup=False, soft_wrap=True)
    return campaign_exit_code(unjudged) if unjudged else EXIT_VALID


def replay_run(path: Path, *, out: Path, keep: bool, master: str, as_json: bool) -> int:
    """`shatter replay`: the stored test again, with the stored fault schedule and the stored text of its files."""
    return _run_plan(replayed(path), out=out, keep=keep, master=master, as_json=as_json)


def replayed(path: Path) -> Plan:
    """The test of a stored run, made from its run.json and nothing else.

    Raises: HistoryError when it is not a run; UsageError when it was not made by `shatter run`.
    """
    from harness.history.runfile import read_meta
    from harness.run.plan import make_plan

    meta = read_meta(path)
    if not meta.test.spec:
        raise UsageError(f"{path} was not made by `shatter run`: its run.json has no test.spec to replay")
    spec = parse_spec(meta.test.spec, where=f"{path}/run.json")
    return make_plan(spec, schedule=meta.schedule, given=meta.test.files)


def export_run(path: Path, *, edn: Path, cluster: str) -> int:
    """`shatter export`."""
    from harness.history.edn.importer import export_edn
    from harness.history.edn.sidecar import sentence

    console = Console()
    display = RichDisplay(console)
    with phase(display, "export"):
        exported = export_edn(path, edn, cluster=cluster)
        display.say(str(edn))
        if exported.tables_left_out:
            display.note(sentence(exported.tables_left_out))
    return EXIT_VALID


def make_images(kafka_image: str | None, *, prune: bool = False) -> int:
    """`shatter images`."""
    from harness.clusters.docker.clients import connect
    from harness.clusters.docker.images import prune_images

    console = Console()
    bench = Bench(out=Path(), master="", keep=False, console=console)
    images = bench.images(kafka_image)
    for name in ("kafka", "mirror", "toxiproxy", "reference", "tools"):
        console.print(f"{name:<10} {getattr(images, name)}", highlight=False)
    if prune:
        client = connect()
        try:
            removed, freed = prune_images(client)
        finally:
            client.close()
        console.print(f"removed {removed} images and layers, {freed / 1e6:.0f} MB", highlight=False)
    return EXIT_VALID


def start_pair(name: str, *, brokers: int, controllers: int, kafka_image: str | None) -> int:
    """`shatter up`."""
    from harness.clusters.plan.topology import ClusterSpec, TopologySpec
    from harness.clusters.up_down import describe, up

    console = Console()
    bench = Bench(out=Path(), master="", keep=True, console=console)
    clusters = tuple(ClusterSpec(name=n, brokers=brokers, separate_controllers=controllers) for n in ("A", "B"))
    spec = TopologySpec(run_id=name, images=bench.images(kafka_image), clusters=clusters, keep=True)
    with phase(RichDisplay(console), "start"):
        topology = up(spec)
    console.print(describe(topology), highlight=False, markup=False, soft_wrap=True)
    console.print(f"`shatter down --name {name}` takes it down", highlight=False)
    topology.detach()
    return EXIT_VALID


def stop_pair(name: str) -> int:
    """`shatter down`."""
    from harness.clusters.up_down import down

    _print_removed(down(name))
    return EXIT_VALID


def clean_up(*, everything: bool, runs: Path) -> int:
    """`shatter clean`: Docker objects, and what killed checks left on the disk, in the folders of `runs` too."""
    from harness.clusters.docker.cleanup import clean
    from harness.clusters.docker.clients import DockerClients

    left: list[Any] = list(remove(remains(runs)))
    try:
        clients = DockerClients()
        try:
            removed = clean(clients, force=everything)
        finally:
            clients.close()
    except ShatterError:
        if left:
            _print_removed(left)
        raise
    _print_removed([*left, *removed])
    return EXIT_VALID


def _print_removed(removed: Sequence[Any]) -> None:
    console = Console()
    for thing in removed:
        console.print(f"removed {thing.kind} {plain(thing.name)}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"{len(removed)} objects removed" if removed else "nothing was left behind", highlight=False)


def print_json(document: dict[str, Any]) -> None:
    """One JSON document on stdout, nothing else."""
    write: Callable[[str], object] = Console(soft_wrap=True, markup=False, highlight=False, emoji=False).file.write
    write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
