"""The command `shatter`. Only parses, calls one function per command, and turns errors into one sentence.

Exit codes: 0 valid, 1 invalid, 2 unknown (also when interrupted), 254 bad arguments, 255 the program failed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

# Ryuk's image is not always available; leftovers are removed by label instead. Must be set before testcontainers loads.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")

import typer
from rich.console import Console

from harness import __version__
from harness.core import streams
from harness.core.errors import EXIT_FAILED, EXIT_UNKNOWN, EXIT_USAGE, EXIT_VALID, ShatterError, UsageError
from harness.core.plain import plain
from harness.core.signals import SIGNALS, Interrupts

app = typer.Typer(
    name="shatter",
    help="Break your Kafka mirror before production does.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_LINE_END = "\n"
_TYPERS_INTERRUPT = 130  # what Typer makes of KeyboardInterrupt

OutOption = Annotated[Path, typer.Option("--out", help="folder for runs")]
KeepOption = Annotated[bool, typer.Option("--keep", help="leave the clusters running afterwards")]
ImageOption = Annotated[
    str | None,
    typer.Option(
        "--kafka-image",
        help="brokers and MirrorMaker 2: an image, e.g. apache/kafka:4.3.1, or a version that is built here: 4.4.0",
    ),
]
MasterOption = Annotated[str, typer.Option("--master", help="Spark master URL")]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON only")]


def _console(*, quiet: bool = False) -> Console:
    return Console(stderr=quiet)


def _pairs(values: list[str] | None, option: str) -> dict[str, str]:
    pairs = {}
    for text in values or []:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise UsageError(f"{option} {text!r} must be KEY=VALUE")
        pairs[key.strip()] = value.strip()
    return pairs


@app.command()
def run(
    mirror: Annotated[str, typer.Option(help="mirror under test")] = "mm2",
    scenario: Annotated[str, typer.Option(help="order of phases")] = "steady",
    workload: Annotated[str, typer.Option(help="what the clients do")] = "append",
    nemesis: Annotated[str, typer.Option(help="faults to inject, with commas: link-partition,broker-pause")] = "",
    contract: Annotated[str | None, typer.Option(help="what the mirror promises; default: the mirror's own")] = None,
    seed: Annotated[int, typer.Option(help="draws the load and the fault schedule")] = 0,
    time_limit: Annotated[float, typer.Option(help="seconds of load under faults")] = 30.0,
    settle_limit: Annotated[float, typer.Option(help="longest wait for the mirror to catch up, in seconds")] = 90.0,
    final_limit: Annotated[float, typer.Option(help="longest time for the final reads, in seconds")] = 60.0,
    brokers: Annotated[int, typer.Option(help="brokers of each cluster")] = 3,
    controllers: Annotated[int, typer.Option(help="separate controllers of each cluster; 0: combined")] = 0,
    topics: Annotated[int, typer.Option(help="topics of the workload")] = 2,
    partitions: Annotated[int, typer.Option(help="partitions of each topic")] = 4,
    rate: Annotated[float, typer.Option(help="operations per second; 0: as fast as it goes")] = 400.0,
    producer: Annotated[str, typer.Option(help="plain, idempotent or transactional")] = "idempotent",
    producers: Annotated[int, typer.Option(help="producer clients")] = 2,
    consumers: Annotated[int, typer.Option(help="consumer clients on each cluster")] = 2,
    max_records: Annotated[int, typer.Option(help="records of one send: 1 to this")] = 4,
    client_life: Annotated[
        int, typer.Option(help="operations of one producer client, as of a job or a lambda; 0: it stays")
    ] = 0,
    txn_hold: Annotated[float, typer.Option(help="seconds that transactions stay open, as a stream processor's")] = 0.0,
    isolation: Annotated[
        str, typer.Option(help="of the consumers: read_committed or read_uncommitted")
    ] = "read_committed",
    acks: Annotated[str, typer.Option(help="all or 1")] = "all",
    min_insync_replicas: Annotated[int | None, typer.Option(help="of the workload's topics")] = None,
    value_bytes: Annotated[int, typer.Option(help="pad values to this size")] = 0,
    mirror_nodes: Annotated[int, typer.Option(help="processes of the mirror")] = 1,
    design: Annotated[
        list[str] | None,
        typer.Option(help="PRESET or SWITCH=VALUE of the reference mirror, repeatable; the later wins"),
    ] = None,
    mirror_option: Annotated[list[str] | None, typer.Option(help="KEY=VALUE for the mirror, repeatable")] = None,
    kafka_image: ImageOption = None,
    authorizer: Annotated[bool, typer.Option(help="clusters with an authorizer, so that ACLs can be created")] = False,
    cleanup_policy: Annotated[
        str, typer.Option(help="of the workload's topics: delete, or compact with a busy cleaner")
    ] = "delete",
    name: Annotated[str, typer.Option(help="name of the run")] = "run",
    out: OutOption = Path("runs"),
    keep: KeepOption = False,
    master: MasterOption = "local[*]",
    json: JsonOption = False,
) -> None:
    """Run one test on real clusters and judge it."""
    from harness.cli.one_run import run_one
    from harness.core.testspec import parse_spec

    values: dict[str, Any] = dict(locals())
    for other in ("out", "keep", "master", "json", "mirror_option", "run_one", "parse_spec"):
        values.pop(other, None)
    values["design"] = tuple(design or ())
    values["mirror_options"] = _pairs(mirror_option, "--mirror-option")
    spec = parse_spec(values, where="shatter run")
    raise typer.Exit(run_one(spec, out=out, keep=keep, master=master, as_json=json))


@app.command()
def campaign(
    file: Annotated[str, typer.Argument(help="TOML file, or a built-in campaign")] = "default",
    out: OutOption = Path("runs"),
    master: MasterOption = "local[*]",
    kafka_image: ImageOption = None,
) -> None:
    """Run a matrix of tests and print a summary."""
    from harness.cli.campaigns import run_campaign

    raise typer.Exit(run_campaign(file, out=out, master=master, kafka_image=kafka_image))


@app.command()
def gate(
    file: Annotated[str, typer.Argument(help="TOML file, or a built-in campaign")],
    junit: Annotated[Path | None, typer.Option(help="write JUnit XML here")] = None,
    summary: Annotated[Path | None, typer.Option(help="write a Markdown summary here")] = None,
    out: OutOption = Path("runs"),
    master: MasterOption = "local[*]",
    kafka_image: ImageOption = None,
) -> None:
    """Run a campaign as a release gate: JUnit XML, a Markdown summary, and the exit code."""
    from harness.cli.campaigns import run_campaign

    raise typer.Exit(run_campaign(file, out=out, master=master, kafka_image=kafka_image, junit=junit, summary=summary))


@app.command()
def check(
    path: Annotated[Path, typer.Argument(help="a run's folder, or a history: FILE.jsonl, FILE.edn")],
    contract: Annotated[str | None, typer.Option(help="judge by this contract instead of the run's own")] = None,
    master: MasterOption = "local[*]",
    json: JsonOption = False,
    out: Annotated[Path | None, typer.Option(help="keep an imported history's tables and report here")] = None,
) -> None:
    """Judge a stored history again, or for the first time."""
    from harness.cli.interrupted_checks import cut_short

    with cut_short(f"the check of {path}"):
        from harness.cli.check import check_path

        code = check_path(path, contract=contract, master=master, as_json=json, out=out)
    raise typer.Exit(code)


@app.command()
def claims(
    names: Annotated[list[str] | None, typer.Argument(metavar="[CLAIM]...", help="these claims only")] = None,
    out: OutOption = Path("runs"),
    run: Annotated[bool, typer.Option("--run", help="run the tests that no stored run covers yet (hours)")] = False,
    write: Annotated[Path | None, typer.Option(help="write claims.md and claims.html into this folder")] = None,
    master: MasterOption = "local[*]",
) -> None:
    """The design threads' claims, and findings of stored runs of the reference mirror."""
    from harness.cli.claims import show_claims

    raise typer.Exit(show_claims(names or (), out=out, run=run, write=write, master=master))


@app.command()
def replay(
    path: Annotated[Path, typer.Argument(help="a run's folder")],
    out: OutOption = Path("runs"),
    keep: KeepOption = False,
    master: MasterOption = "local[*]",
    json: JsonOption = False,
) -> None:
    """Run a stored test again: same parameters, same seed, the same fault schedule."""
    from harness.cli.one_run import replay_run

    raise typer.Exit(replay_run(path, out=out, keep=keep, master=master, as_json=json))


@app.command()
def export(
    path: Annotated[Path, typer.Argument(help="a run's folder")],
    edn: Annotated[Path, typer.Option("--edn", help="write a Jepsen history (jepsen.tests.kafka) here")],
    cluster: Annotated[str, typer.Option(help="whose operations: A or B")] = "A",
) -> None:
    """Write a run's history in another format, so that another checker can judge it."""
    from harness.cli.interrupted_checks import cut_short

    with cut_short(f"the export of {path}"):
        from harness.cli.export import export_run

        code = export_run(path, edn=edn, cluster=cluster)
    raise typer.Exit(code)


@app.command("report")
def report_command(path: Annotated[Path, typer.Argument(help="a run's folder that was checked")]) -> None:
    """Make the HTML report of a run again."""
    from harness.cli.interrupted_checks import cut_short

    with cut_short(f"the report of {path}"):
        from harness.report.html import write_report

        written = write_report(path)
    _console().print(plain(written), soft_wrap=True, highlight=False, markup=False)


@app.command("list")
def list_command(
    what: Annotated[
        str, typer.Argument(help="mirrors, workloads, nemeses, checkers, contracts, scenarios or campaigns")
    ],
    verbose: Annotated[bool, typer.Option("--verbose", help="all details of each")] = False,
    json: JsonOption = False,
) -> None:
    """List what there is to choose from."""
    from harness.cli.listing import print_listing

    print_listing(what, console=_console(), verbose=verbose, as_json=json)


@app.command()
def images(
    kafka_image: ImageOption = None,
    prune: Annotated[bool, typer.Option("--prune", help="remove images of other versions and of build stages")] = False,
) -> None:
    """Build or pull the images that are missing."""
    from harness.cli.images import make_images

    raise typer.Exit(make_images(kafka_image, prune=prune))


@app.command()
def doctor(
    fix: Annotated[bool, typer.Option("--fix", help="install and start what is missing")] = False,
    json: JsonOption = False,
) -> None:
    """Report what is missing on this machine and how to fix it."""
    from harness.cli.doctor import main_diagnose

    raise typer.Exit(main_diagnose(fix=fix, json=json))


@app.command()
def up(
    name: Annotated[str, typer.Option(help="name of the pair")] = "pair",
    brokers: Annotated[int, typer.Option(help="brokers of each cluster")] = 3,
    controllers: Annotated[int, typer.Option(help="separate controllers of each cluster; 0: combined")] = 0,
    kafka_image: ImageOption = None,
) -> None:
    """Start a pair of clusters and toxiproxy to work with by hand; it stays until `shatter down`."""
    from harness.cli.pair import start_pair

    raise typer.Exit(start_pair(name, brokers=brokers, controllers=controllers, kafka_image=kafka_image))


@app.command()
def down(name: Annotated[str, typer.Option(help="name of the pair")] = "pair") -> None:
    """Take down a pair that `shatter up` started."""
    from harness.cli.pair import stop_pair

    raise typer.Exit(stop_pair(name))


@app.command()
def clean(
    everything: Annotated[bool, typer.Option("--all", help="also containers that still have a living owner")] = False,
    out: OutOption = Path("runs"),
) -> None:
    """Remove what runs and checks left behind: containers, networks, volumes, temporary folders, scratch in runs."""
    from harness.cli.clean import clean_up

    raise typer.Exit(clean_up(everything=everything, runs=out))


def _version(value: bool) -> None:
    if value:
        Console().print(f"shatterproof {__version__}", highlight=False)
        raise typer.Exit(EXIT_VALID)


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Break your Kafka mirror before production does."""


def main() -> None:
    """Entry point: run a command and exit with its code; an error is one sentence on stderr."""
    streams.last()
    sys.exit(_main(sys.argv[1:]))


def _main(arguments: list[str]) -> int:
    errors = Console(stderr=True)

    def complain(message: str) -> None:
        text = f"error: {plain(message, keep=_LINE_END)}"
        errors.print(text, style="red", highlight=False, markup=False, soft_wrap=True)

    interrupts = Interrupts()
    try:
        with interrupts.installed(ignored=frozenset(SIGNALS)), interrupts.exposed("ending"):
            code = app(args=arguments, prog_name="shatter", standalone_mode=False)
    except ShatterError as error:
        complain(str(error))
        return error.exit_code
    except typer.TyperException as error:
        text = _one_sentence(error)
        if not text:  # no arguments at all: the help was the answer
            return EXIT_USAGE
        complain(text)
        return EXIT_USAGE
    except (KeyboardInterrupt, typer.Abort):
        complain("interrupted")
        return EXIT_UNKNOWN
    except Exception as error:
        errors.print_exception()
        complain(f"this is a fault of shatterproof itself ({type(error).__name__}: {error}); please report it")
        return EXIT_FAILED
    if code == _TYPERS_INTERRUPT and interrupts.count:
        complain("interrupted")
        return EXIT_UNKNOWN
    return code if isinstance(code, int) else EXIT_VALID


def _one_sentence(error: typer.TyperException) -> str:
    text = error.format_message().rstrip(".")
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":  # typer does not export this class
        Console(stderr=True).print(text, highlight=False, markup=False)
        return ""
    return f"{text}; see `{context.command_path} --help`" if context is not None else text


if __name__ == "__main__":
    main()
