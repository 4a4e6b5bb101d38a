#!/bin/sh
# Starts one Kafka process as the container's first process, in our image and in the official layout alike
# (POSIX sh: the official image has no bash).
#
#   run-kafka.sh broker CONFIG       format the log dirs with $CLUSTER_ID where they are not, then run the broker
#   run-kafka.sh mirror CONFIG       run a dedicated MirrorMaker 2
#   run-kafka.sh tool CLASS ARGS...  run one class, e.g. org.apache.kafka.tools.TopicCommand
#
# Environment (all optional except CLUSTER_ID for an unformatted broker):
#   CLUSTER_ID                   the ID that an unformatted log dir gets
#   KAFKA_FORMAT_ARGS            more arguments for `StorageTool format`
#   KAFKA_HEAP_OPTS              default -Xms64m -Xmx256m
#   KAFKA_JVM_PERFORMANCE_OPTS   default: serial collector, first compiler tier only (small, quick to start)
#   KAFKA_OPTS                   more JVM flags
#   KAFKA_LOG_LEVEL              default INFO; WARN for tools
# The JVM replaces the shell (exec): signals sent to the container reach Kafka itself.
set -eu
LC_ALL=C
export LC_ALL

here=$(cd "$(dirname "$0")" && pwd)
home=${KAFKA_HOME:-/opt/kafka}
template=$here/template

fail() {
    echo "run-kafka: $*" >&2
    exit 64
}

if [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ]; then
    java=$JAVA_HOME/bin/java
elif [ -x /opt/java/bin/java ]; then
    java=/opt/java/bin/java
else
    java=$(command -v java) || fail "no java in this image"
fi

# The archive of preloaded classes fits only the class path it was dumped with: same jars, same order.
classpath=
for jar in "$home"/libs/*.jar; do
    [ -e "$jar" ] || fail "no jars in $home/libs: not a Kafka image"
    classpath=${classpath:+$classpath:}$jar
done

flags=${KAFKA_JVM_PERFORMANCE_OPTS:--XX:+UseSerialGC -XX:TieredStopAtLevel=1}
flags="$flags ${KAFKA_HEAP_OPTS:--Xms64m -Xmx256m}"
flags="$flags -Djava.awt.headless=true -XX:+ExitOnOutOfMemoryError ${KAFKA_OPTS:-}"
if [ -e "$here/classes.jsa" ]; then
    flags="$flags -XX:SharedArchiveFile=$here/classes.jsa"
fi

# key FILE NAME: the value of a property, empty when it is not set.
key() {
    sed -n "s/^[[:space:]]*$(echo "$2" | sed 's/\./\\./g')[[:space:]]*[=:][[:space:]]*//p" "$1" | tail -n 1
}

run() {
    # shellcheck disable=SC2086 # flags are words
    exec "$java" $flags "-Dlog4j2.configurationFile=file:$here/log4j2.properties" -cp "$classpath" "$@"
}

# A log dir that came out of this very image's StorageTool at build time saves a JVM start per broker. It holds no
# identity; that is written here. Only the plain case: one dir, static voters, no format arguments.
format_from_template() {
    [ -d "$template" ] && [ -z "${KAFKA_FORMAT_ARGS:-}" ] || return 1
    [ -n "$(key "$1" controller.quorum.voters)" ] && [ -z "$(key "$1" metadata.log.dir)" ] || return 1
    node=$(key "$1" node.id)
    [ -n "$node" ] || return 1
    case $2 in *,*) return 1 ;; esac
    uuid=$(head -c 16 /dev/urandom | base64 | tr '+/' '-_' | tr -d '=')
    mkdir -p "$2"
    cp -R "$template"/. "$2"/
    printf 'version=1\nnode.id=%s\ncluster.id=%s\ndirectory.id=%s\n' "$node" "$CLUSTER_ID" "$uuid" \
        >"$2/meta.properties.tmp"
    mv "$2/meta.properties.tmp" "$2/meta.properties"
}

format() {
    dirs=$(key "$1" log.dirs)
    dirs=${dirs:-$(key "$1" log.dir)}
    dirs=${dirs:-/tmp/kafka-logs}
    first=${dirs%%,*}
    [ ! -e "$first/meta.properties" ] || return 0
    [ -n "${CLUSTER_ID:-}" ] || fail "$first is not formatted and CLUSTER_ID is not set"
    ! format_from_template "$1" "$dirs" || return 0
    # shellcheck disable=SC2086 # format arguments are words
    (export KAFKA_LOG_LEVEL=WARN && run kafka.tools.StorageTool format --ignore-formatted --cluster-id "$CLUSTER_ID" --config "$1" \
        ${KAFKA_FORMAT_ARGS:-})
}

[ $# -ge 2 ] || fail "usage: run-kafka.sh broker CONFIG | mirror CONFIG | tool CLASS ARGS..."
command=$1
shift
case $command in
broker)
    [ -r "$1" ] || fail "cannot read the configuration $1"
    format "$1"
    run kafka.Kafka "$@"
    ;;
mirror)
    [ -r "$1" ] || fail "cannot read the configuration $1"
    run org.apache.kafka.connect.mirror.MirrorMaker "$@"
    ;;
tool)
    KAFKA_LOG_LEVEL=${KAFKA_LOG_LEVEL:-WARN}
    export KAFKA_LOG_LEVEL
    run "$@"
    ;;
*) fail "unknown command $command: broker, mirror or tool" ;;
esac
