"""Every request, response and record of Cluster Mirroring against bytes written out by hand from its schema.

Flexible encoding (KIP-482): a compact string is its length plus one as a varint, then its bytes; 00 is null; a compact
array is its length plus one, then its items; every structure ends with the number of its tagged fields.
"""

from __future__ import annotations

import asyncio
import uuid

import pytest

from harness.wire import cluster_mirror_api as api
from harness.wire.addresses import Address
from harness.wire.aio import Connection
from harness.wire.client import WireClient, WireError
from harness.wire.cluster_mirror_names import SETTINGS, STATES, names_of
from harness.wire.entity_table import Entity, EntityError, decode, decode_whole, encode
from harness.wire.frames import api_name, encode_request, known_versions, request_type, response_header, response_type
from harness.wire.server import Request, WireServer

pytestmark = pytest.mark.unit

ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
ID_BYTES = "00112233445566778899aabbccddeeff"
ZERO = "00" * 16
MINUS_ONE = "ff" * 8

FORMS: list[tuple[str, Entity, str]] = [
    (
        "create: two settings, one of them null",
        api.CreateClusterMirrorRequest(
            mirror_name="ab",
            config=(
                api.ClusterMirrorConfig(name="k", value="v"),
                api.ClusterMirrorConfig(name="n", value=None),
            ),
        ),
        "03 6162  03  02 6b 02 76 00  02 6e 00 00  00",
    ),
    (
        "create: done",
        api.CreateClusterMirrorResponse(error_code=0),
        "00000000 0000 00 00",
    ),
    (
        "create: refused, throttled",
        api.CreateClusterMirrorResponse(throttle_time_ms=258, error_code=136, error_message="no"),
        "00000102 0088 03 6e6f 00",
    ),
    (
        "start: the source's id and partitions",
        api.StartMirrorTopicsRequest(
            mirror_name="m",
            topics=(api.StartedTopic(topic_id=ID, topic_name="t", num_partitions=2),),
        ),
        f"02 6d  02 {ID_BYTES} 02 74 00000002 00  {MINUS_ONE}  00",
    ),
    (
        "start: patterns in tags 0 and 1, a topic without an id",
        api.StartMirrorTopicsRequest(
            mirror_name="m",
            topics=(api.StartedTopic(topic_id=None, topic_name="t", num_partitions=0),),
            include_patterns=("a", "bc"),
            exclude_patterns=("d",),
            state_validation_offset=5,
        ),
        f"02 6d  02 {ZERO} 02 74 00000000 00  0000000000000005  02  00 06 03 0261 036263  01 03 02 0264",
    ),
    (
        "start: one topic is there already",
        api.StartMirrorTopicsResponse(
            error_code=0,
            topics=(
                api.TopicResult(name="t", error_code=138, error_message="x"),
                api.TopicResult(name="u", error_code=0),
            ),
        ),
        "00000000 0000 00  03  0274 008a 0278 00  0275 0000 00 00  00",
    ),
    (
        "stop: topics",
        api.StopMirrorTopicsRequest(mirror_name="m", topics=(api.NamedTopic(topic_name="t"),)),
        f"026d  02 0274 00  {MINUS_ONE} 00",
    ),
    (
        "stop: a pattern in tag 0",
        api.StopMirrorTopicsRequest(mirror_name="m", topics=(), patterns=(".*",)),
        f"026d 01 {MINUS_ONE} 01 00 04 02 032e2a",
    ),
    (
        "stop: refused as a whole",
        api.StopMirrorTopicsResponse(error_code=145, error_message="s"),
        "00000000 0091 0273 01 00",
    ),
    (
        "pause",
        api.PauseMirrorTopicsRequest(
            mirror_name="m", topics=(api.NamedTopic(topic_name="t"),), state_validation_offset=1
        ),
        "026d 02 0274 00 0000000000000001 00",
    ),
    (
        "pause: paused already",
        api.PauseMirrorTopicsResponse(error_code=0, topics=(api.TopicResult(name="t", error_code=140),)),
        "00000000 0000 00 02 0274 008c 00 00 00",
    ),
    (
        "resume",
        api.ResumeMirrorTopicsRequest(mirror_name="m", topics=()),
        f"026d 01 {MINUS_ONE} 00",
    ),
    (
        "resume: not paused",
        api.ResumeMirrorTopicsResponse(error_code=141),
        "00000000 008d 00 01 00",
    ),
    (
        "delete",
        api.DeleteClusterMirrorRequest(mirror_name="m"),
        f"026d {MINUS_ONE} 00",
    ),
    (
        "delete: not empty",
        api.DeleteClusterMirrorResponse(error_code=143),
        "00000000 008f 00 00",
    ),
    (
        "list, with topics",
        api.ListClusterMirrorsRequest(include_topic_names=True),
        "01 00",
    ),
    (
        "list, without",
        api.ListClusterMirrorsRequest(),
        "00 00",
    ),
    (
        "list: one mirror with its topics, one without anything",
        api.ListClusterMirrorsResponse(
            error_code=0,
            mirrors=(
                api.ListedMirror(
                    mirror_name="m", source_bootstrap="h:1", source_cluster_id="c", topic_count=1, topic_names=("t",)
                ),
                api.ListedMirror(mirror_name="n", source_bootstrap=""),
            ),
        ),
        "00000000 0000 00  03  026d 04683a31 0263 00000001 02 0274 00  026e 01 01 00000000 01 00  00",
    ),
    (
        "describe",
        api.DescribeClusterMirrorsRequest(mirror_names=("m",)),
        "02 026d 00 00",
    ),
    (
        "describe with lookups in tags 0 and 1",
        api.DescribeClusterMirrorsRequest(
            mirror_names=(),
            include_authorized_operations=True,
            cluster_id="c",
            last_mirror_epoch_lookups=(api.EpochLookup(topic_id=ID, partitions=(0, 1)),),
        ),
        f"01 01 02  00 02 0263  01 1b 02 {ID_BYTES} 03 00000000 00000001 00",
    ),
    (
        "describe: a partition that mirrors, one that failed",
        api.DescribeClusterMirrorsResponse(
            error_code=0,
            mirrors=(
                api.DescribedMirror(
                    error_code=0,
                    mirror_name="m",
                    topics=(
                        api.DescribedTopic(
                            topic_name="t",
                            partitions=(
                                api.DescribedPartition(
                                    partition_index=0,
                                    source_offset=258,
                                    destination_offset=256,
                                    lag=2,
                                    state_value="MIRRORING",
                                ),
                                api.DescribedPartition(
                                    partition_index=1, state_value="FAILED", retry_attempt=3, error_message="x"
                                ),
                            ),
                        ),
                    ),
                ),
            ),
        ),
        (
            "00000000 0000 00 02  0000 026d 80000000 02  0274 03"
            "  00000000 0000000000000102 0000000000000100 0000000000000002 0a4d4952524f52494e47 0000 00 00"
            f"  00000001 {MINUS_ONE} {MINUS_ONE} {MINUS_ONE} 074641494c4544 0003 0278 00"
            "  00 00 00"
        ),
    ),
    (
        "describe: epochs in tag 0",
        api.DescribeClusterMirrorsResponse(
            error_code=0,
            lookup_results=(
                api.FoundEpochs(
                    topic_id=ID,
                    partitions=(
                        api.FoundEpoch(partition_index=0, last_mirror_epoch=7),
                        api.FoundEpoch(partition_index=1),
                    ),
                ),
            ),
        ),
        f"00000000 0000 00 01 01  00 25 02 {ID_BYTES} 03 00000000 00000007 00  00000001 ffffffff 00  00",
    ),
    (
        "the reset record",
        api.MirrorPidResetRecord(source_cluster_id="c"),
        "0000 0263 00",
    ),
]


@pytest.mark.parametrize(("entity", "form"), [(e, f) for _, e, f in FORMS], ids=[name for name, _, _ in FORMS])
def test_each_message_is_these_bytes_in_both_directions(entity: Entity, form: str) -> None:
    assert encode(entity).hex() == form.replace(" ", "")
    assert decode_whole(type(entity), bytes.fromhex(form)) == entity


def test_every_request_and_response_of_the_table_is_tried() -> None:
    tried = {type(entity) for _, entity, _ in FORMS}
    assert {payload for pair in api.PAYLOADS.values() for payload in pair} <= tried
    for key, (request, response) in api.PAYLOADS.items():
        assert (request.__api_key__, response.__api_key__) == (key, key)
        assert request_type(key, 0) is request
        assert response_type(key, 0) is response
        assert known_versions(key) == (0, 0)


STATE_RECORDS: list[tuple[api.StateValue, str, str]] = [
    (
        api.LastMirrorEpochsValue(last_mirror_epoch=9),
        f"0001 0001 6d {ID_BYTES} 00000003",
        "0000 00000009 00",
    ),
    (
        api.MirrorPartitionStateValue(state=api.State.MIRRORING, previous_state=api.State.EPOCH_FENCING),
        f"0002 0001 6d {ID_BYTES} 00000003",
        "0000 02 01 0000 00 00",
    ),
    (
        api.MirrorPartitionStateValue(state=api.State.FAILED, retry_attempt=4, error_message="x"),
        f"0002 0001 6d {ID_BYTES} 00000003",
        "0000 07 10 0004 0278 00",
    ),
]


@pytest.mark.parametrize(("value", "key_form", "value_form"), STATE_RECORDS)
def test_records_of_the_state_topic_have_a_type_before_the_key_and_a_version_before_the_value(
    value: api.StateValue, key_form: str, value_form: str
) -> None:
    key = api.StateKey(mirror_name="m", topic_id=ID, partition=3)
    written = api.encode_state(key, value)
    assert [part.hex() for part in written] == [key_form.replace(" ", ""), value_form.replace(" ", "")]
    assert api.decode_state(*written)[1:] == (key, value)
    assert api.decode_state(written[0], None)[1:] == (key, None)


def test_a_state_record_of_an_unknown_type_is_refused_by_its_number() -> None:
    with pytest.raises(EntityError, match="type 3"):
        api.decode_state(bytes.fromhex("0003"), None)
    with pytest.raises(EntityError, match="cut off"):
        api.decode_state(b"\x00", None)


def test_tagged_fields_of_a_newer_build_are_skipped() -> None:
    newer = bytes.fromhex("00 01 09 02 abcd")
    assert decode_whole(api.ListClusterMirrorsRequest, newer) == api.ListClusterMirrorsRequest()


@pytest.mark.parametrize(
    ("form", "what"),
    [
        ("", "include_topic_names cannot be read at byte 0"),
        ("00", "tagged fields of ListClusterMirrorsRequest cannot be read"),
        ("00 01 09 05 ab", "tagged field 9 is cut off"),
        ("00 00 00000001", "4 bytes more than its table says"),
    ],
)
def test_bytes_that_are_no_such_message_are_refused_with_the_field(form: str, what: str) -> None:
    with pytest.raises(EntityError, match=what):
        decode_whole(api.ListClusterMirrorsRequest, bytes.fromhex(form))


def test_a_tag_whose_size_is_not_its_fields_is_refused() -> None:
    with pytest.raises(EntityError, match=r"cluster_id is 2 bytes long, its tag says 3"):
        decode(api.DescribeClusterMirrorsRequest, bytes.fromhex("01 00 01 00 03 0263 00"))


def test_null_where_the_table_has_no_null_is_refused_in_both_directions() -> None:
    with pytest.raises(EntityError, match=r"NamedTopic\.topic_name cannot be None"):
        encode(api.NamedTopic(topic_name=None))  # type: ignore[arg-type]
    with pytest.raises(EntityError, match=r"NamedTopic\.topic_name cannot be read"):
        decode_whole(api.NamedTopic, bytes.fromhex("00 00"))
    with pytest.raises(EntityError, match=r"mirror_names cannot be read at byte 0: the array is null"):
        decode_whole(api.DescribeClusterMirrorsRequest, bytes.fromhex("00 00 00"))


def test_a_number_out_of_range_is_refused_with_its_field() -> None:
    with pytest.raises(EntityError, match=r"TopicResult\.error_code cannot be 70000"):
        encode(api.TopicResult(name="t", error_code=70000))


def test_a_request_is_sent_with_a_header_of_version_2() -> None:
    sent = encode_request(api.ListClusterMirrorsRequest(), correlation_id=7, client_id="me")
    assert sent.hex() == "0000000f" + "0062" + "0000" + "00000007" + "00026d65" + "00" + "0000"
    assert response_header(api.LIST, 0, 7).hex() == "00000007" + "00"
    assert api_name(api.LIST) == "ListClusterMirrors"


def test_our_server_decodes_them_and_both_clients_read_its_answers() -> None:
    asked: list[api.DeleteClusterMirrorRequest] = []
    answer = api.DeleteClusterMirrorResponse(error_code=137, error_message="gone")

    async def handler(request: Request) -> object:
        asked.append(request.decode())
        return answer if asked[-1].mirror_name == "m" else (encode(answer), b"\x00")

    async def scene() -> None:
        server = WireServer({api.DELETE: ((0, 0), handler)})
        port = await server.listen("clients", "127.0.0.1", 0)
        connection = Connection(Address("127.0.0.1", port))
        with WireClient("127.0.0.1", port) as client:
            assert await connection.version(api.DELETE) == 0
            good, bad = (api.DeleteClusterMirrorRequest(mirror_name=name) for name in ("m", "longer"))
            assert await connection.call(good) == await asyncio.to_thread(client.call, good) == answer
            assert asked == [good, good]
            with pytest.raises(WireError, match="do not decode: DeleteClusterMirrorResponse has 1 bytes more"):
                await asyncio.to_thread(client.call, bad)
            with pytest.raises(WireError, match="answered DeleteClusterMirror with bytes that do not decode"):
                await connection.call(bad)
        connection.close()
        await server.close()

    asyncio.run(scene())


def test_names_that_differ_between_builds() -> None:
    assert names_of("mirror.acl.include") == ("mirror.acl.include", "mirror.acls.include")
    assert names_of("bootstrap.servers") == ("bootstrap.servers",)
    assert all(setting == names[0] for setting, names in SETTINGS.items())
    assert set(STATES.values()) <= {state.name for state in api.State}
    assert not set(STATES) & {state.name for state in api.State}
