"""`shatter images`: makes the images that runs use."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from harness.cli.bench import Bench
from harness.core.errors import EXIT_VALID


def make_images(kafka_image: str | None, *, kafka_tgz: Path | None = None, prune: bool = False) -> int:
    """`shatter images`. kafka_tgz: a release archive of which an image is built, too."""
    from harness.clusters.docker.clients import connect
    from harness.clusters.docker.images import prune_images

    console = Console()
    bench = Bench(out=Path(), master="", keep=False, console=console)
    release = None if kafka_tgz is None else bench.release_image(kafka_tgz)
    images = bench.images(kafka_image)
    for name in ("kafka", "mirror", "toxiproxy", "reference", "tools"):
        console.print(f"{name:<10} {getattr(images, name)}", highlight=False)
    if release is not None:
        console.print(
            f"{'release':<10} {release.name}: Kafka {release.kafka_version}, for --kafka-image, --source-image and "
            "--destination-image",
            highlight=False,
            soft_wrap=True,
        )
    if prune:
        client = connect()
        try:
            removed, freed = prune_images(client)
        finally:
            client.close()
        console.print(f"removed {removed} images and layers, {freed / 1e6:.0f} MB", highlight=False)
    return EXIT_VALID
