"""The command `shatter`. Only parses, calls one function per command, and turns errors into one sentence.

Exit codes: 0 valid, 1 invalid, 2 unknown (also when interrupted), 254 bad arguments, 255 the program failed.
"""

from __future__ import annotations

import os
import sys
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

# Ryuk's image is not always available; leftovers are removed by label instead. Must be set before testcontainers loads.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")

import typer
from rich.console import Console

from harness import __version__
from harness.cli.spec_options import described, given
from harness.core import streams
from harness.core.errors import EXIT_FAILED, EXIT_UNKNOWN, EXIT_USAGE, EXIT_VALID, ShatterError
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


def _run(**values: Any) -> None:
    """Run one test on real clusters and judge it."""
    from harness.cli.one_run import run_one
    from harness.core.testspec import parse_spec

    spec = parse_spec(given(values), where="shatter run")
    shown = {name: values[name] for name in ("out", "keep", "master")}
    raise typer.Exit(run_one(spec, as_json=values["json"], **shown))


app.command("run")(
    described(
        _run,
        [
            Parameter("out", Parameter.KEYWORD_ONLY, default=Path("runs"), annotation=OutOption),
            Parameter("keep", Parameter.KEYWORD_ONLY, default=False, annotation=KeepOption),
            Parameter("master", Parameter.KEYWORD_ONLY, default="local[*]", annotation=MasterOption),
            Parameter("json", Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption),
        ],
    )
)


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
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="runs' folders, or histories: FILE.jsonl, FILE.edn")
    ],
    contract: Annotated[str | None, typer.Option(help="judge by this contract instead of the run's own")] = None,
    master: MasterOption = "local[*]",
    json: JsonOption = False,
    out: Annotated[Path | None, typer.Option(help="keep an imported history's tables and report here")] = None,
) -> None:
    """Judge stored histories again, or for the first time. Several share one Spark session."""
    from harness.cli.interrupted_checks import cut_short

    others = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    with cut_short(f"the check of {paths[0]}{others}"):
        from harness.cli.check import check_paths

        code = check_paths(paths, contract=contract, master=master, as_json=json, out=out)
    raise typer.Exit(code)


@app.command()
def claims(
    names: Annotated[list[str] | None, typer.Argument(metavar="[CLAIM]...", help="these claims only")] = None,
    out: OutOption = Path("runs"),
    run: Annotated[bool, typer.Option("--run", help="run the tests that no stored run covers yet (hours)")] = False,
    published: Annotated[Path | None, typer.Option(help="count the runs of this claims.json, too")] = None,
    write: Annotated[Path | None, typer.Option(help="write claims.md and claims.html into this folder")] = None,
    master: MasterOption = "local[*]",
) -> None:
    """The design threads' claims, and findings of stored runs of the reference mirror."""
    from harness.cli.claims import show_claims

    raise typer.Exit(show_claims(names or (), out=out, run=run, published=published, write=write, master=master))


@app.command()
def kip(
    out: OutOption = Path("runs"),
    write: Annotated[Path, typer.Option(help="the folder of kip-1279.md and of the tables it is made from")] = Path(
        "docs"
    ),
) -> None:
    """Write docs/kip-1279.md: what stored runs of Cluster Mirroring showed, per implementation, scenario and fault."""
    from harness.cli.kip import write_kip_page

    raise typer.Exit(write_kip_page(out, write=write))


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
    kafka_tgz: Annotated[
        Path | None,
        typer.Option(help="also make an image of this release archive, as ./gradlew releaseTarGz leaves it"),
    ] = None,
    prune: Annotated[bool, typer.Option("--prune", help="remove images of other versions and of build stages")] = False,
) -> None:
    """Build or pull the images that are missing."""
    from harness.cli.images import make_images

    raise typer.Exit(make_images(kafka_image, kafka_tgz=kafka_tgz, prune=prune))


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

    def print_error(message: str) -> None:
        text = f"error: {plain(message, keep=_LINE_END)}"
        errors.print(text, style="red", highlight=False, markup=False, soft_wrap=True)

    interrupts = Interrupts()
    try:
        with interrupts.installed(ignored=frozenset(SIGNALS)), interrupts.exposed("ending"):
            code = app(args=arguments, prog_name="shatter", standalone_mode=False)
    except ShatterError as error:
        print_error(str(error))
        return error.exit_code
    except typer.TyperException as error:
        text = _one_sentence(error)
        if not text:  # no arguments at all: the help was the answer
            return EXIT_USAGE
        print_error(text)
        return EXIT_USAGE
    except (KeyboardInterrupt, typer.Abort):
        print_error("interrupted")
        return EXIT_UNKNOWN
    except Exception as error:
        errors.print_exception()
        print_error(f"this is a fault of shatterproof itself ({type(error).__name__}: {error}); please report it")
        return EXIT_FAILED
    if code == _TYPERS_INTERRUPT and interrupts.count:
        print_error("interrupted")
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
