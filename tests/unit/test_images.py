"""What images are built from, how they are named, and how a build's output becomes a message. No engine."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import harness
from harness.clusters.docker import image_build
from harness.clusters.docker.image_build import BuildLog, split_name
from harness.clusters.docker.image_files import (
    _MIRROR_CODE,
    Recipe,
    brokers_recipe,
    brokers_versions,
    compose_dir,
    entry_archive,
    host_certificates,
    proxy_arguments,
    recipe,
)
from harness.clusters.docker.images import outdated, plan_images, versions_of
from harness.clusters.docker.release_archive import ReleaseArchive
from harness.core.errors import ImageError

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "recipe"
    (made / "ca").mkdir(parents=True)
    (made / "Dockerfile").write_text("FROM scratch\n")
    (made / "run.sh").write_text("exit 0\n")
    (made / "ca" / "README").write_text("certificates\n")
    return made


def members(tar: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(tar)) as opened:
        return {member.name: member for member in opened}


class TestNames:
    def test_same_files_same_name(self, folder: Path, tmp_path: Path) -> None:
        copy = tmp_path / "copy"
        (copy / "ca").mkdir(parents=True)
        for path in folder.rglob("*"):
            if path.is_file():
                (copy / path.relative_to(folder)).write_bytes(path.read_bytes())
        assert Recipe("kafka", folder).tag() == Recipe("kafka", copy).tag()

    def test_every_change_that_matters_makes_another_name(self, folder: Path) -> None:
        this = Recipe("kafka", folder)
        names = [this.tag(), this.tag(base="shatterproof/base:1")]
        (folder / "run.sh").write_text("exit 1\n")
        names.append(this.tag())
        (folder / "run.sh").rename(folder / "start.sh")
        names.append(this.tag())
        (folder / "more").write_text("")
        names.append(this.tag())
        assert len(set(names)) == len(names)

    def test_executable_bits_that_an_archive_lost_change_nothing(self, folder: Path) -> None:
        this = Recipe("kafka", folder)
        before = this.tag(), this.context({})
        (folder / "run.sh").chmod(0o755)
        assert (this.tag(), this.context({})) == before
        assert members(this.context({}))["run.sh"].mode & 0o111

    def test_what_editors_leave_changes_nothing(self, folder: Path) -> None:
        this = Recipe("kafka", folder)
        before = this.tag()
        for name in (".Dockerfile.swp", "run.sh~", ".DS_Store"):
            (folder / name).write_text("x")
        assert this.tag() == before

    def test_a_machines_certificates_do_not_change_the_name(self, folder: Path) -> None:
        this = Recipe("kafka", folder)
        before = this.tag()
        (folder / "ca" / "own.crt").write_text(CERTIFICATE)
        assert this.tag() == before

    def test_changing_the_base_changes_every_image(self) -> None:
        plan = plan_images()
        for name, tag in plan.finished.items():
            assert tag == recipe(name).tag(base=plan.base)
            assert tag != recipe(name).tag(base="shatterproof/base:000000000000")
        assert len({plan.base, *plan.finished.values()}) == 4

    def test_brokers_of_another_version_are_made_from_our_kafka_image(self) -> None:
        plan = plan_images()
        assert plan.brokers["4.4.0"].startswith("shatterproof/kafka-4.4.0:")
        assert set(plan.brokers) == set(brokers_versions())
        made = brokers_recipe("4.4.0")
        assert made is not None
        assert plan.brokers["4.4.0"] != made.tag(base="shatterproof/kafka:000000000000")
        assert brokers_recipe("../kafka") is None
        assert brokers_recipe("9.9.9") is None

    def test_only_other_versions_of_ours_are_outdated(self) -> None:
        plan = plan_images()
        tags = [plan.base, *plan.finished.values(), *plan.brokers.values()]
        tags += ["shatterproof/kafka:000000000000", "apache/kafka:4.3.1"]
        assert outdated(tags, plan) == ["shatterproof/kafka:000000000000"]

    @pytest.mark.parametrize(
        ("name", "parts"),
        [
            ("apache/kafka:4.3.1", ("apache/kafka", "4.3.1")),
            ("apache/kafka", ("apache/kafka", "latest")),
            ("host.example:5000/team/kafka", ("host.example:5000/team/kafka", "latest")),
            ("host.example:5000/team/kafka:4", ("host.example:5000/team/kafka", "4")),
            ("kafka@sha256:abc", ("kafka", "sha256:abc")),
        ],
    )
    def test_split_name(self, name: str, parts: tuple[str, str]) -> None:
        assert split_name(name) == parts


class TestContext:
    def test_certificates_of_the_host_and_of_the_folder_go_in(self, folder: Path) -> None:
        (folder / "ca" / "own.crt").write_text(CERTIFICATE)
        found = members(Recipe("kafka", folder).context({"host-x-0.crt": CERTIFICATE.encode()}))
        assert set(found) == {"Dockerfile", "run.sh", "ca/README", "ca/own.crt", "ca/host-x-0.crt"}

    def test_equal_files_make_an_equal_context_whatever_their_times(self, folder: Path) -> None:
        before = Recipe("kafka", folder).context({})
        (folder / "Dockerfile").touch()
        assert Recipe("kafka", folder).context({}) == before

    def test_entry_archive_is_what_a_foreign_image_lacks(self) -> None:
        found = members(entry_archive())
        assert set(found) == {"opt/shatterproof/run-kafka.sh", "opt/shatterproof/log4j2.properties"}
        assert found["opt/shatterproof/run-kafka.sh"].mode & 0o111

    def test_bundles_of_certificates_are_split(self, tmp_path: Path) -> None:
        (tmp_path / "two.crt").write_text("# first\n" + CERTIFICATE + "\nsecond\n" + CERTIFICATE)
        (tmp_path / "one.pem").write_text(CERTIFICATE)
        (tmp_path / "torn.crt").write_text("-----BEGIN CERTIFICATE-----\nQUJD\n")
        (tmp_path / "notes.txt").write_text(CERTIFICATE)
        found = host_certificates([tmp_path, tmp_path / "absent"])
        assert sorted(found) == ["host-one-0.crt", "host-two-0.crt", "host-two-1.crt"]
        assert all(content.decode() == CERTIFICATE for content in found.values())

    def test_proxies_that_a_build_can_reach_are_passed_on(self) -> None:
        found = proxy_arguments({"HTTPS_PROXY": "http://proxy.example:3128", "no_proxy": "localhost"})
        assert found["https_proxy"] == found["HTTPS_PROXY"] == "http://proxy.example:3128"
        assert found["no_proxy"] == "localhost"

    @pytest.mark.parametrize("proxy", ["http://127.0.0.1:3128", "http://localhost:3128", "http://[::1]:3128"])
    def test_proxies_of_this_hosts_loopback_are_not(self, proxy: str) -> None:
        assert proxy_arguments({"http_proxy": proxy, "no_proxy": "localhost"}) == {}


class TestPins:
    def test_the_pinned_jars_are_sorted_and_of_the_pinned_version(self) -> None:
        lines = (compose_dir() / "kafka" / "jars.sha256").read_text().splitlines()
        names = [line[66:] for line in lines]
        assert all(len(line.split("  ")[0]) == 64 for line in lines)
        assert names == sorted(set(names))
        kafka, mirror = versions_of("jars.sha256", names)
        assert f"<kafka.version>{kafka}</kafka.version>" in (compose_dir() / "kafka" / "pom.xml").read_text()
        assert mirror == kafka

    def test_the_log_binding_has_the_version_of_the_log_library(self) -> None:
        names = (compose_dir() / "kafka" / "jars.sha256").read_text().split()
        core = next(name for name in names if name.startswith("log4j-core-"))
        assert core.replace("core", "slf4j-impl") in names


class TestLayout:
    def test_versions(self) -> None:
        names = ["kafka-clients-4.4.0.jar", "kafka_2.13-4.4.0.jar", "connect-mirror-client-4.3.1.jar"]
        assert versions_of("x", names) == ("4.4.0", None)
        assert versions_of("x", [*names, "connect-mirror-4.3.1.jar"]) == ("4.4.0", "4.3.1")

    def test_a_build_of_a_branch_has_a_version_too(self) -> None:
        names = [
            "kafka_2.13-4.2.0-SNAPSHOT.jar",
            "kafka_2.13-4.2.0-SNAPSHOT-sources.jar",
            "kafka_2.13-4.2.0-rc1-test.jar",
        ]
        assert versions_of("x", [*names, "connect-mirror-4.2.0-SNAPSHOT.jar"]) == ("4.2.0-SNAPSHOT", "4.2.0-SNAPSHOT")

    @pytest.mark.parametrize(
        ("names", "words"),
        [
            (["kafka-clients-4.3.1.jar"], "no kafka_2.13"),
            (["kafka_2.13-4.3.1.jar", "kafka_2.13-4.4.0.jar"], "several Kafkas (4.3.1, 4.4.0)"),
            (["kafka_2.13-3.9.1.jar"], "Kafka 3.9.1"),
        ],
    )
    def test_what_cannot_be_used_is_named(self, names: list[str], words: str) -> None:
        with pytest.raises(ImageError) as caught:
            versions_of("team/kafka:1", names)
        assert "team/kafka:1" in str(caught.value)
        assert words in str(caught.value)


class TestReleaseArchive:
    @staticmethod
    def archive(path: Path, names: dict[str, bytes]) -> Path:
        with tarfile.open(path, "w:gz") as tar:
            for name, content in names.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return path

    def test_its_jars_become_the_context(self, tmp_path: Path) -> None:
        root = "kafka_2.13-4.2.0-SNAPSHOT"
        names = {
            f"{root}/libs/b.jar": b"2",
            f"{root}/libs/a.jar": b"1",
            f"{root}/bin/x.sh": b"",
            f"{root}/libs/x/c.jar": b"",
        }
        release = ReleaseArchive(self.archive(tmp_path / "k.tgz", names))
        assert release.jars == ["b.jar", "a.jar"]
        with tarfile.open(fileobj=io.BytesIO(release.context({}))) as tar:
            assert tar.getnames() == ["Dockerfile", "libs/b.jar", "libs/a.jar"]
        name = release.tag("4.2.0-SNAPSHOT", base="x")
        assert name.startswith("kafka-release:4.2.0-SNAPSHOT-")
        other = ReleaseArchive(self.archive(tmp_path / "l.tgz", {**names, f"{root}/libs/a.jar": b"3"}))
        assert other.tag("4.2.0-SNAPSHOT", base="x") != name

    def test_what_is_none_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ImageError, match="check the path"):
            ReleaseArchive(tmp_path / "none.tgz")
        with pytest.raises(ImageError, match="no jars in a folder libs"):
            ReleaseArchive(self.archive(tmp_path / "k.tgz", {"readme": b""}))
        whole = self.archive(tmp_path / "k.tgz", {"k/libs/a.jar": bytes(range(256)) * 4000}).read_bytes()
        (tmp_path / "half.tgz").write_bytes(whole[: len(whole) // 2])
        with pytest.raises(ImageError, match=r"half\.tgz is"):
            ReleaseArchive(tmp_path / "half.tgz")
        (tmp_path / "text.tgz").write_text("no archive")
        with pytest.raises(ImageError, match="no complete tar archive"):
            ReleaseArchive(tmp_path / "text.tgz")


class TestBuildOutput:
    def follow(self, tmp_path: Path, chunks: list[dict[str, Any]], cancelled: Event | None = None) -> list[str]:
        seen: list[str] = []
        (tmp_path / "x.log").write_text("")
        log = BuildLog(tmp_path / "x.log")
        image_build.follow(iter(chunks), "kafka", log, lambda _, line: seen.append(line), cancelled or Event())
        return seen

    def test_one_line_per_step(self, tmp_path: Path) -> None:
        chunks = [{"stream": "Step 1/2 : FROM x\n"}, {"stream": " ---> 1\n"}, {"stream": "Step 2/2 : RUN a   b\n"}]
        assert self.follow(tmp_path, chunks) == ["step 1/2 FROM x", "step 2/2 RUN a b"]
        assert (tmp_path / "x.log").read_text() == "Step 1/2 : FROM x\n ---> 1\nStep 2/2 : RUN a   b\n"

    def test_a_failure_names_the_step_the_words_and_the_log(self, tmp_path: Path) -> None:
        chunks = [
            {"stream": "Step 3/9 : RUN apt-get install nothing\n"},
            {"stream": "Reading package lists...\n"},
            {"stream": "\x1b[91mE: Unable to locate package nothing\n\x1b[0m"},
            {"error": "The command '/bin/sh -c apt-get' returned a non-zero code: 100"},
        ]
        with pytest.raises(ImageError) as caught:
            self.follow(tmp_path, chunks)
        text = str(caught.value)
        assert "step 3 of 9 (RUN apt-get install nothing)" in text
        assert "E: Unable to locate package nothing" in text
        assert str(tmp_path / "x.log") in text

    def test_calling_off_ends_the_build(self, tmp_path: Path) -> None:
        cancelled = Event()
        cancelled.set()
        with pytest.raises(ImageError, match="called off"):
            self.follow(tmp_path, [{"stream": "Step 1/2 : FROM x\n"}], cancelled)


class TestEntryPoint:
    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        script = compose_dir() / "kafka" / "run-kafka.sh"
        given = {"PATH": "/usr/bin:/bin", **environment}
        return subprocess.run(
            ["sh", str(script), *arguments], env=given, capture_output=True, text=True, timeout=20, check=False
        )

    def test_without_jars_it_says_so(self, tmp_path: Path) -> None:
        done = self.run("broker", "x", KAFKA_HOME=str(tmp_path), JAVA_HOME=str(tmp_path))
        assert done.returncode == 64
        assert f"no jars in {tmp_path}/libs" in done.stderr or "no java in this image" in done.stderr

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("broker",), "usage:"),
            (("dance", "x"), "unknown command dance"),
            (("broker", "/nowhere/server.properties"), "cannot read the configuration /nowhere/server.properties"),
            (("mirror", "/nowhere/mm2.properties"), "cannot read the configuration /nowhere/mm2.properties"),
        ],
    )
    def test_bad_calls(self, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
        done = self.run(*arguments, **self.layout(tmp_path))
        assert done.returncode == 64
        assert words in done.stderr

    def test_an_unformatted_broker_without_an_id_is_refused(self, tmp_path: Path) -> None:
        config = tmp_path / "server.properties"
        config.write_text(f"node.id=1\nlog.dirs = {tmp_path}/data\n")
        done = self.run("broker", str(config), **self.layout(tmp_path))
        assert done.returncode == 64
        assert f"{tmp_path}/data is not formatted and CLUSTER_ID is not set" in done.stderr

    def layout(self, tmp_path: Path) -> dict[str, str]:
        """A folder with the shape of an image; nothing in it runs before the checks above have passed."""
        for path in (tmp_path / "libs" / "kafka_2.13-4.3.1.jar", tmp_path / "jre" / "bin" / "java"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")
        (tmp_path / "jre" / "bin" / "java").chmod(0o755)
        return {"KAFKA_HOME": str(tmp_path), "JAVA_HOME": str(tmp_path / "jre")}


class TestTheReferenceMirrorsCode:
    def test_its_image_holds_everything_that_the_process_imports(self, tmp_path: Path) -> None:
        """Run from the build context alone, without this package on the path."""
        with tarfile.open(fileobj=io.BytesIO(recipe("reference").context({}))) as tar:
            tar.extractall(tmp_path, filter="data")
        program = (
            "import sys; sys.path = [p for p in sys.path if 'site-packages' in p or 'lib/python' in p or '.zip' in p];"
            f"sys.path.insert(0, {str(tmp_path / 'code')!r}); import mirrors.reference.server.__main__ as main;"
            "print(main.__file__);"
            "print(*sorted({m.split('.')[0] for m in sys.modules} & {'docker', 'pyspark', 'confluent_kafka'}))"
        )
        done = subprocess.run(
            [sys.executable, "-P", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        where, forbidden = done.stdout.split("\n")[:2]
        assert where.startswith(str(tmp_path))
        assert forbidden == ""

    def test_changed_code_makes_another_name_and_another_last_layer_alone(self) -> None:
        names = [name for name, _ in recipe("reference").files()]
        assert "code/mirrors/reference/server/process.py" in names
        assert "code/mirrors/__init__.py" not in names
        lines = [line for line in (compose_dir() / "reference" / "Dockerfile").read_text().splitlines() if line]
        assert lines[-1] == "COPY code/ /opt/mirror/"
        assert sum("code/" in line and not line.startswith("#") for line in lines) == 1


def test_the_mirrors_image_holds_every_module_that_its_code_imports_and_nothing_of_the_harness_side() -> None:
    root = Path(harness.__file__).parents[1]
    held = {path for pattern in _MIRROR_CODE for path in root.glob(pattern)}
    seen: set[Path] = set()
    ahead = [root / "mirrors" / "reference" / "server" / "__main__.py"]
    while ahead:
        path = ahead.pop()
        seen.add(path)
        assert path in held, f"{path.relative_to(root)} is not in the image"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("harness.", "mirrors.")):
                module = root.joinpath(*(node.module or "").split("."))
                files = [module.with_suffix(".py"), *(module / f"{alias.name}.py" for alias in node.names)]
                ahead += [file for file in files if file.is_file() and file not in seen]
    assert len(seen) > 40
    elsewhere = {path.relative_to(root).parts[:2] for path in seen} - {("mirrors", "reference"), ("harness", "wire")}
    assert elsewhere == {("harness", "core")}
    assert {path.name for path in seen if "core" in path.parts} == {"errors.py", "internal_topics.py"}
