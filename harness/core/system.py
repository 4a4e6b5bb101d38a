"""Facts about this machine, and installation of its distribution's packages (Debian and Ubuntu, as root)."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from harness.core.errors import ShatterError

Say = Callable[[str], None]
APT_LIMIT_S = 900
_LOCK_S = 120  # another apt may be at work, e.g. unattended upgrades right after the machine came up


def os_release(text: str | None = None) -> dict[str, str]:
    """The fields of /etc/os-release; empty where there is none."""
    if text is None:
        try:
            text = Path("/etc/os-release").read_text(encoding="utf-8")
        except OSError:
            return {}
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key.strip(): value.strip().strip("\"'") for key, _, value in pairs}


def system_name(release: Mapping[str, str] | None = None) -> str:
    """The distribution's own name, else the kernel's."""
    release = os_release() if release is None else release
    return release.get("PRETTY_NAME") or release.get("NAME") or platform.system() or "an unknown system"


def is_debian_like(release: Mapping[str, str] | None = None) -> bool:
    """Whether packages come by apt: Debian, Ubuntu and their derivatives."""
    release = os_release() if release is None else release
    family = {release.get("ID", ""), *release.get("ID_LIKE", "").split()}
    return bool(family & {"debian", "ubuntu"}) and shutil.which("apt-get") is not None


def is_root() -> bool:
    """Whether this process may install packages and start daemons."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def find_command(name: str) -> str | None:
    """Path of a command; also looks where root's PATH may lack them (`su` without a login)."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])
    return shutil.which(name, path=path)


def cannot_install() -> str:
    """Why packages cannot be installed by this process; empty when they can."""
    if platform.system() != "Linux":
        return f"this is {system_name()}, not Debian or Ubuntu"
    if not is_debian_like():
        return f"this is {system_name()}, not Debian or Ubuntu"
    return "" if is_root() else "this is not root"


def apt_install(packages: Sequence[str], *, say: Say) -> None:
    """Install packages without questions; refreshes the package lists only when they do not know a package.

    Raises: ShatterError with apt's last error.
    """
    say(f"installing {', '.join(packages)}")
    # Java's packages fail where the manuals' folder was left out of the image.
    Path("/usr/share/man/man1").mkdir(parents=True, exist_ok=True)
    install = ["install", "-qy", "--no-install-recommends", *packages]
    code, output = _apt(install)
    if code != 0:
        say("refreshing the package lists")
        code, output = _apt(["update", "-q"])
        if code == 0:
            code, output = _apt(install)
    if code != 0:
        words = [line.strip() for line in output.splitlines() if line.strip()]
        errors = [line for line in words if line.startswith(("E:", "Err:"))] or words or ["it printed nothing"]
        raise ShatterError(
            f"apt-get could not install {', '.join(packages)}: {errors[-1]}; install it by hand, then run this again"
        )


def apt_has(package: str) -> bool:
    """Whether the package lists offer a package."""
    try:
        run = subprocess.run(
            ["apt-cache", "show", "--no-all-versions", package], capture_output=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return run.returncode == 0 and bool(run.stdout.strip())


def apt_update(*, say: Say) -> None:
    """Refresh the package lists; an error is left to the installation that follows."""
    say("refreshing the package lists")
    _apt(["update", "-q"])


def _apt(arguments: Sequence[str]) -> tuple[int, str]:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_MODE": "l", "LC_ALL": "C"}
    try:
        run = subprocess.run(
            ["apt-get", "-o", f"DPkg::Lock::Timeout={_LOCK_S}", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=APT_LIMIT_S,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return 1, f"E: apt-get {arguments[0]} took longer than {APT_LIMIT_S} s"
    except OSError as error:
        return 1, f"E: apt-get cannot be run: {error}"
    return run.returncode, run.stdout
