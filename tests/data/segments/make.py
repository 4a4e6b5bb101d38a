"""Recreates the segment files of this folder with a real broker; run by hand: `python make.py IMAGE`.

IMAGE is the Kafka image that `shatter images` builds. One broker runs for a minute; its files are copied here, with
the output of Kafka's `DumpLogSegments` for each. Tests compare our decoder with that output.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import time
import uuid
from pathlib import Path

import docker
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

HERE = Path(__file__).parent
DATA = "/var/lib/kafka/data"
PORT = 19592
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CONFIG = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=CLIENTS://0.0.0.0:9092,REPL://0.0.0.0:9094,CONTROLLER://0.0.0.0:9093
advertised.listeners=CLIENTS://127.0.0.1:{port},REPL://localhost:9094
listener.security.protocol.map=CLIENTS:PLAINTEXT,REPL:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=REPL
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
offsets.topic.num.partitions=1
transaction.state.log.num.partitions=1
log.cleaner.backoff.ms=300
log.retention.check.interval.ms=1000
group.initial.rebalance.delay.ms=0
"""
TOPICS: dict[str, dict[str, str]] = {
    **{f"client-{codec}": {} for codec in CODECS},  # compressed by librdkafka
    **{f"broker-{codec}": {"compression.type": codec.replace("none", "uncompressed")} for codec in CODECS},
    "txn": {},
    "idempotent": {},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "trimmed": {"segment.bytes": "1048576"},
    "compacted": {
        "cleanup.policy": "compact",
        "segment.ms": "1000",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "1000",
        "delete.retention.ms": "60000",
    },
}


def mixed(producer: Producer, topic: str) -> None:
    """Two batches with all shapes of key, value and headers."""
    for batch in range(2):
        for i in range(6):
            producer.produce(topic, f"{topic}:{batch}:{i}".encode(), f"k{i}".encode(), 0)
        producer.produce(topic, b"no key", None, 0)
        producer.produce(topic, None, b"no value", 0)
        producer.produce(topic, b"", b"", 0)
        producer.produce(topic, "größer ✓".encode(), "ключ".encode(), 0, headers=[("h", b"1"), ("ä", None)])
        producer.produce(topic, b"\xff\xfe", b"\xfe", 0, headers=[("", b"")])
        producer.produce(topic, b"x" * 300, b"long", 0)
        producer.flush(20)


def transactions(servers: str) -> None:
    """Committed and aborted transactions of two producers, interleaved, and plain records between."""
    one = Producer({"bootstrap.servers": servers, "transactional.id": "one", "linger.ms": 5})
    two = Producer({"bootstrap.servers": servers, "transactional.id": "two", "linger.ms": 5})
    plain = Producer({"bootstrap.servers": servers})
    for producer in (one, two):
        producer.init_transactions(30)
    for round_ in range(3):
        one.begin_transaction()
        two.begin_transaction()
        for i in range(3):
            one.produce("txn", f"one:{round_}:{i}", partition=0)
            two.produce("txn", f"two:{round_}:{i}", partition=0)
        one.flush(20)
        two.flush(20)
        plain.produce("txn", f"plain:{round_}", partition=0)
        plain.flush(20)
        one.commit_transaction(30)
        two.abort_transaction(30)


def fill(servers: str) -> None:
    """Create all topics and write their records."""
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(t, 1, 1, config=c) for t, c in TOPICS.items()]).values():
        future.result(30)
    for codec in CODECS:
        compressing = {"bootstrap.servers": servers, "linger.ms": 200, "compression.type": codec}
        mixed(Producer(compressing), f"client-{codec}")
        mixed(Producer({"bootstrap.servers": servers, "linger.ms": 200}), f"broker-{codec}")
    mixed(Producer({"bootstrap.servers": servers, "linger.ms": 200}), "append-time")
    mixed(Producer({"bootstrap.servers": servers, "linger.ms": 200, "enable.idempotence": True}), "idempotent")
    mixed(Producer({"bootstrap.servers": servers, "linger.ms": 200}), "trimmed")
    trimmed = admin.delete_records([TopicPartition("trimmed", 0, 5)])
    for future in trimmed.values():
        future.result(30)
    transactions(servers)
    keyed = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for round_ in range(4):
        for i in range(8):
            keyed.produce("compacted", f"v{round_}:{i}", f"k{i % (2 * round_ + 2)}", 0)
        keyed.flush(20)
        time.sleep(2)
    time.sleep(6)


def main(image: str) -> None:
    """Start the broker, fill it, stop it, copy and print its logs."""
    engine = docker.from_env()
    run = f"segments-{uuid.uuid4().hex[:6]}"
    labels = {"shatterproof": run}
    ports = {"9092/tcp": ("127.0.0.1", PORT)}
    container = engine.containers.create(
        image, ["broker", "/tmp/broker.properties"], name=run, labels=labels, ports=ports,
        environment={"CLUSTER_ID": "c2hhdHRlcnByb29mLXNlZw"},
    )  # fmt: skip
    try:
        config = CONFIG.format(port=PORT, data=DATA).encode()
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            info = tarfile.TarInfo("broker.properties")
            info.size = len(config)
            tar.addfile(info, io.BytesIO(config))
        container.put_archive("/tmp", archive.getvalue())
        container.start()
        deadline = time.monotonic() + 60
        while b"Kafka Server started" not in container.logs():
            if time.monotonic() > deadline:
                raise SystemExit(container.logs()[-2000:].decode())
            time.sleep(0.5)
        fill(f"127.0.0.1:{PORT}")
        container.stop(timeout=30)
        stream, _ = container.get_archive(DATA)
        with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as tar:
            for member in tar.getmembers():
                keep(tar, member)
        dump(image, run)
    finally:
        container.remove(force=True, v=True)


def keep(tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    """Copy one file of the data folder if the tests use it."""
    path = Path(*Path(member.name).parts[1:])
    wanted = path.suffix == ".log" or path.name in ("partition.metadata",) or path.name.endswith("-checkpoint")
    source = tar.extractfile(member) if member.isfile() and wanted and not str(path).startswith("__") else None
    if source is not None:
        target = HERE / "A" / "1" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read())


def dump(image: str, run: str) -> None:
    """Store the output of DumpLogSegments for each file next to it, as NNN.dump."""
    for log in sorted((HERE / "A" / "1").rglob("*.log")):
        command = ["docker", "run", "--rm", "-i", "--label", f"shatterproof={run}", "--entrypoint", "sh", image, "-c"]
        name = f"/tmp/{log.name}"
        tool = "sh /opt/shatterproof/run-kafka.sh tool org.apache.kafka.tools.DumpLogSegments"
        script = f"cat > {name} && {tool} --print-data-log --files {name}"
        text = subprocess.run([*command, script], input=log.read_bytes(), capture_output=True, check=True, timeout=60)
        log.with_suffix(".dump").write_bytes(text.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
