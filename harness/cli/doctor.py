"""`shatter doctor`: what a run needs, what this machine has, and how to fix each difference."""

from __future__ import annotations

import json as json_module
import os
import platform
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import docker
import docker.errors
import requests
from packaging.requirements import Requirement
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.clusters.docker import cleanup, engine, images, subnets
from harness.clusters.docker.clients import DockerClients
from harness.core.errors import EXIT_FAILED, ShatterError
from harness.core.system import apt_has, apt_install, apt_update, cannot_install

GIB = 1024**3
API_NEEDED = (1, 40)
MEMORY_NEEDED = 4 * GIB  # 3+3 brokers and MirrorMaker 2 take 1.3 GiB, a Spark session 2 GiB
DISK_NEEDED = 6 * GIB  # 3 GiB while images are built, and room for logs and evidence
RUNS_NEEDED = 1 * GIB
CPUS_NEEDED = 2
JAVA_NEEDED = 17
PYTHON_NEEDED = (3, 11)
JAVA_PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless")
SLOW_DRIVERS = ("vfs",)  # copies every layer for every container
_DISTRIBUTION = "shatterproof"


@dataclass(frozen=True)
class Check:
    """One requirement of a run. `blocks`: without it no run is possible; otherwise it is only good to know."""

    name: str
    ok: bool
    found: str
    need: str
    mend: str = ""
    blocks: bool = True


def diagnose() -> list[Check]:
    """Run every check; those that only the engine can answer are left out when it does not answer."""
    checks = [check_python(), *check_packages(), check_java(), check_cpus(os.cpu_count() or 1)]
    try:
        client = engine.connect()
    except ShatterError as error:
        missing = Check("engine", False, str(error), "a Docker engine that answers", "shatter doctor --fix")
        return [
            missing,
            *checks,
            check_memory(available_memory(), None),
            check_disk("disk here", Path.cwd(), RUNS_NEEDED),
        ]
    try:
        info = client.info()
        found = [check_engine(client.version()), check_driver(str(info.get("Driver", "unknown")))]
        checks.append(check_memory(available_memory(), int(info.get("MemTotal") or 0)))
        checks.append(check_disk("disk here", Path.cwd(), RUNS_NEEDED))
        root = Path(str(info.get("DockerRootDir", "")))
        if root.is_dir() and info.get("Name") == platform.node():
            checks.append(check_disk("disk of the engine", root, DISK_NEEDED))
        return [*found, *checks, check_addresses(client), check_images(client), check_leftovers()]
    except (docker.errors.DockerException, requests.RequestException) as error:
        broken = Check("engine", False, f"it answers, but not to everything: {error}", "an engine in good health")
        return [broken, *checks]
    finally:
        client.close()


def check_engine(version: dict[str, Any]) -> Check:
    """The engine's version and the API that it speaks."""
    api = str(version.get("ApiVersion", "0.0"))
    numbers = tuple(int(part) for part in api.split("."))
    found = f"{version.get('Version', 'unknown version')}, API {api}, at {engine.engine_address()}"
    need = "API " + ".".join(map(str, API_NEEDED)) + " or newer"
    return Check("engine", numbers >= API_NEEDED, found, need, "install a newer Docker engine")


def check_driver(driver: str) -> Check:
    """How the engine stores images and containers."""
    mend = 'set "storage-driver": "overlay2" in the engine\'s daemon.json and restart it'
    return Check("storage driver", driver not in SLOW_DRIVERS, driver, "overlay2 or the like", mend, blocks=False)


def check_python() -> Check:
    """The interpreter that runs this."""
    need = ".".join(map(str, PYTHON_NEEDED)) + " or newer"
    return Check("Python", sys.version_info >= PYTHON_NEEDED, platform.python_version(), need, "install a newer Python")


def check_packages(requirements: Sequence[str] | None = None) -> list[Check]:
    """The Python packages that the installed distribution asks for, in one check."""
    if requirements is None:
        try:
            requirements = metadata.requires(_DISTRIBUTION) or []
        except metadata.PackageNotFoundError:
            mend = "python -m pip install -e ."
            return [Check("packages", False, f"{_DISTRIBUTION} is not installed", "an installed distribution", mend)]
    wrong, seen = [], 0
    for requirement in map(Requirement, requirements):
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        seen += 1
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing (needs {requirement.specifier or 'any'})")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{requirement.name} {version} (needs {requirement.specifier})")
    found = "; ".join(wrong) if wrong else f"{seen} as required"
    return [Check("packages", not wrong, found, "the versions of pyproject.toml", "make setup")]


def check_java() -> Check:
    """A Java for Spark."""
    from checkers.spark.session import find_java, java_version  # imports pyspark, which may be what is missing

    mend = "shatter doctor --fix, or point JAVA_HOME at a Java 17"
    try:
        home = find_java()
    except ShatterError:
        return Check("Java", False, "none that is new enough", f"{JAVA_NEEDED} or newer (for Spark)", mend)
    return Check("Java", True, f"{java_version(home / 'bin' / 'java')} in {home}", f"{JAVA_NEEDED} or newer", mend)


def check_cpus(count: int) -> Check:
    """Processors: fewer make a run slow, not wrong."""
    return Check(
        "processors", count >= CPUS_NEEDED, str(count), f"{CPUS_NEEDED} or more",
        "use a bigger machine, or fewer brokers (--brokers 1)", blocks=False,
    )  # fmt: skip


def check_memory(here: int | None, engine_total: int | None) -> Check:
    """Memory that is free here, and what the engine's machine has in all (they differ with Docker Desktop)."""
    known = [size for size in (here, engine_total) if size]
    found = []
    if here is not None:
        found.append(f"{here / GIB:.1f} GiB free here")
    if engine_total:
        found.append(f"{engine_total / GIB:.1f} GiB in all at the engine")
    need = f"{MEMORY_NEEDED / GIB:.0f} GiB for two clusters of three and Spark"
    mend = "end other programs, give the engine's machine more memory, or use fewer brokers (--brokers 1)"
    return Check("memory", not known or min(known) >= MEMORY_NEEDED, ", ".join(found) or "unknown", need, mend, False)


def available_memory(meminfo: str | None = None) -> int | None:
    """MemAvailable of /proc/meminfo in bytes; None where there is none."""
    if meminfo is None:
        try:
            meminfo = Path("/proc/meminfo").read_text()
        except OSError:
            return None
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def check_disk(name: str, folder: Path, need: int) -> Check:
    """Free space where a folder is."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check(name, False, f"{folder} cannot be read: {error.strerror}", f"{need / GIB:.0f} GiB")
    mend = f"free some space on the disk of {folder} (`shatter clean`, `shatter images --prune`)"
    return Check(name, free >= need, f"{free / GIB:.1f} GiB free at {folder}", f"{need / GIB:.0f} GiB", mend)


def check_addresses(client: docker.DockerClient) -> Check:
    """A free subnet for a run."""
    need = f"a free /{subnets.PREFIX} for each run"
    try:
        pools = subnets.address_pools(client)
        taken = [*(net for _, net in subnets.docker_subnets(client)), *subnets.host_routes()]
    except ShatterError as error:
        return Check("addresses", False, str(error), need)
    free = sum(1 for pool in pools for net in pool.subnets(new_prefix=subnets.PREFIX) if not _overlaps(net, taken))
    found = f"{free} free /{subnets.PREFIX} in {', '.join(map(str, pools))}"
    mend = f"shatter clean, docker network prune, or name another pool in {subnets.POOL_VARIABLE}"
    return Check("addresses", free > 0, found, need, mend)


def check_images(client: docker.DockerClient) -> Check:
    """Our own images. Missing ones are built before a run by themselves, so they never block."""
    missing = images.missing_images(client)
    found = f"to be built: {', '.join(missing)}" if missing else "present"
    return Check("images", not missing, found, "built once, about 3 minutes", "shatter images", blocks=False)


def check_leftovers() -> Check:
    """Objects left behind by runs whose process is gone, and what is up on purpose."""
    clients = DockerClients()
    try:
        found = cleanup.labelled_objects(clients)
    except ShatterError as error:
        return Check("leftovers", False, str(error), "none", blocks=False)
    finally:
        clients.close()
    stray = [item for item in found if item.stray]
    running = sorted({item.run_id for item in found if not item.stray})
    words = [f"{len(stray)} objects of ended runs ({', '.join(sorted({s.run_id for s in stray}))})"] if stray else []
    words += [f"up or running: {', '.join(running)}"] if running else []
    return Check("leftovers", not stray, "; ".join(words) or "none", "none", "shatter clean", blocks=False)


def fix(*, say: Callable[[str], None]) -> list[str]:
    """Install and start what can be: the engine, Java. Returns what could not be done, one sentence each."""
    failed = []
    mends: tuple[Callable[..., str], ...] = (engine.install_and_start, install_java)
    for mend in mends:
        try:
            say(mend(say=say))
        except ShatterError as error:
            failed.append(str(error))
    return failed


def install_java(*, say: Callable[[str], None]) -> str:
    """Make sure that there is a Java for Spark; returns what there is. Raises ShatterError when there is none."""
    from checkers.spark.session import find_java

    try:
        return f"Java is there: {find_java()}"
    except ShatterError:
        if why := cannot_install():
            raise ShatterError(
                f"no Java {JAVA_NEEDED} or newer was found and none can be installed: {why}; install one and point "
                "JAVA_HOME at it"
            ) from None
    if not any(map(apt_has, JAVA_PACKAGES)):
        apt_update(say=say)
    package = next(filter(apt_has, JAVA_PACKAGES), None)
    if package is None:
        raise ShatterError(
            f"the package lists of this system offer none of {', '.join(JAVA_PACKAGES)}: install a Java {JAVA_NEEDED} "
            "or newer and point JAVA_HOME at it"
        )
    apt_install([package], say=say)
    return f"Java was installed: {find_java()}"


def render(checks: Sequence[Check], console: Console) -> None:
    """The checks as a table, and below it how to fix what is wrong."""
    table = Table(box=None, pad_edge=False, show_header=True, header_style="bold")
    for title in ("", "what", "found", "needed"):
        table.add_column(title, overflow="fold")
    for check in checks:
        mark = "[green]✓[/]" if check.ok else ("[red]✗[/]" if check.blocks else "[yellow]![/]")
        table.add_row(mark, check.name, Text(check.found), Text("" if check.ok else check.need))
    console.print(table, highlight=False)
    for check in checks:
        if not check.ok and check.mend:
            console.print(f"  {check.name}: {check.mend}", highlight=False, markup=False, soft_wrap=True)


def main_diagnose(*, fix: bool = False, json: bool = False) -> int:
    """The command: repair first if asked, then diagnose and print. 0 when nothing blocks a run, else 255."""
    console, notes = Console(), Console(stderr=True)
    failed = (
        _fix(say=lambda text: notes.print(f"  {text}", highlight=False, markup=False, soft_wrap=True)) if fix else []
    )
    checks = diagnose()
    if json:
        document = {"ok": _usable(checks), "checks": [asdict(check) for check in checks], "not_fixed": failed}
        print(json_module.dumps(document, indent=2))  # noqa: T201 - the command's output, never wrapped or coloured
    else:
        render(checks, console)
        for sentence in failed:
            console.print(f"  not fixed: {sentence}", style="red", highlight=False, markup=False, soft_wrap=True)
    return 0 if _usable(checks) else EXIT_FAILED


_fix = fix  # the command's option has the same name


def _usable(checks: Sequence[Check]) -> bool:
    return all(check.ok or not check.blocks for check in checks)


def _overlaps(net: IPv4Network, taken: Sequence[IPv4Network]) -> bool:
    return any(net.overlaps(other) for other in taken)
