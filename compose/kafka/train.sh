#!/bin/sh
# At image build: run a broker and a mirror for some seconds, note the classes they load, and dump these as an
# archive (AppCDS) next to run-kafka.sh. Also keeps a freshly formatted log dir as the template for new brokers.
# Needs nothing but the image itself; the archive is an optimisation and every path works without it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT

cat >"$work/broker.properties" <<END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:19093
listeners=CLIENTS://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093
advertised.listeners=CLIENTS://127.0.0.1:19092
listener.security.protocol.map=CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=CLIENTS
controller.listener.names=CONTROLLER
log.dirs=$work/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
END
cat >"$work/mirror.properties" <<END
clusters=A,B
A.bootstrap.servers=127.0.0.1:19092
B.bootstrap.servers=127.0.0.1:19092
A->B.enabled=true
A->B.topics=train
replication.factor=1
config.storage.replication.factor=1
offset.storage.replication.factor=1
offset.storage.partitions=1
status.storage.replication.factor=1
status.storage.partitions=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
dedicated.mode.enable.internal.rest=true
listeners=http://127.0.0.1:18083
B.exactly.once.source.support=enabled
END

# waits SECONDS FILE TEXT: until the log has the text; a build that trains nothing must fail, not go on.
waits() {
    n=0
    until grep -q "$3" "$2"; do
        n=$((n + 1))
        [ $n -lt $(($1 * 5)) ] || { tail -n 200 "$2"; echo "train: no '$3' within $1 s" >&2; exit 1; }
        sleep 0.2
    done
}
kafka() {
    list=$1
    shift
    KAFKA_OPTS="-XX:DumpLoadedClassList=$work/$list.lst" "$here/run-kafka.sh" "$@"
}

CLUSTER_ID=AAAAAAAAAAAAAAAAAAAAAA
export CLUSTER_ID
kafka format tool kafka.tools.StorageTool format --cluster-id $CLUSTER_ID --config "$work/broker.properties"
mkdir -p "$here/template"
cp -R "$work/data"/. "$here/template"/
rm -f "$here/template/meta.properties"
# A log dir without this file starts a broker that silently lacks share groups and transaction features. Its place
# depends on Kafka's version.
find "$here/template" -name '*.checkpoint' | grep -q . || { echo "train: the format wrote no checkpoint" >&2; exit 1; }

kafka broker broker "$work/broker.properties" >"$work/broker.log" 2>&1 &
broker=$!
waits 60 "$work/broker.log" 'Kafka Server started'
kafka topic tool org.apache.kafka.tools.TopicCommand --bootstrap-server 127.0.0.1:19092 \
    --create --topic train --partitions 2
kafka producer tool org.apache.kafka.tools.ProducerPerformance --topic train --num-records 200 --record-size 100 \
    --throughput -1 --transactional-id train --transaction-duration-ms 100 \
    --producer-props bootstrap.servers=127.0.0.1:19092 >/dev/null
kafka consumer tool org.apache.kafka.tools.consumer.ConsoleConsumer --bootstrap-server 127.0.0.1:19092 \
    --topic train --from-beginning --max-messages 200 --group train >/dev/null
kafka mirror mirror "$work/mirror.properties" >"$work/mirror.log" 2>&1 &
mirror=$!
waits 60 "$work/broker.log" 'Created log for partition A.train-'
sleep 5
kill $mirror
wait $mirror || true
kill $broker
wait $broker || true

# Lines with "source:" belong to other class loaders and carry numbers of their own list: they cannot be merged.
cat "$work"/*.lst | grep -v -e 'source:' -e '^#' | sort -u >"$work/all.lst"
KAFKA_OPTS="-Xshare:dump -XX:SharedClassListFile=$work/all.lst -XX:SharedArchiveFile=$here/classes.jsa" \
    "$here/run-kafka.sh" tool kafka.Kafka >"$work/dump.log" 2>&1 || { tail -n 50 "$work/dump.log"; exit 1; }
ls -l "$here/classes.jsa"
