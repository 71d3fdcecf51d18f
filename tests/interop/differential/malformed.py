"""Requests that are none, and whether a broker answers them or closes the connection."""

from __future__ import annotations

import struct

from interop.differential.exchanges import Peer, scenario
from interop.differential.offsets import T0, records

from kafkapy.protocol.header import encode_request
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
from kafkapy.protocol.messages.describe_cluster import DescribeClusterRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.protocol.messages.produce import ProduceRequest
from kafkapy.protocol.registry import ApiKeys


def frame(body: bytes, size: int | None = None) -> bytes:
    return struct.pack(">i", len(body) if size is None else size) + body


def header(key: int, version: int, *, client: bytes = b"\x00\x04test", tags: bytes = b"") -> bytes:
    return struct.pack(">hhi", key, version, 7) + client + tags


@scenario(ApiKeys.API_VERSIONS)
def malformed_frames(peer: Peer, version: int) -> None:
    if version:
        return
    send = peer.send_bytes
    for size in (-1, -(2**31), 2**31 - 1, 104_857_601):
        send(f"size {size}", frame(b"", size))
    send("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    send("TLS", bytes.fromhex("16030100a5010000a10303") + bytes(150))
    for length in (0, 1, 2, 4, 7, 8, 9, 10):
        send(f"{length} zeros", frame(bytes(length)))
    send("negative client id", frame(header(18, 0, client=b"\xff\xfe")))
    send("null client id", frame(header(18, 0, client=b"\xff\xff")))
    send("client id past the end", frame(header(18, 0, client=b"\x7f\xff")))
    send("client id that is not UTF-8", frame(header(18, 0, client=b"\x00\x02\xff\xfe")))
    send("header without tags", frame(header(18, 3)))
    send("header with a tag", frame(header(18, 3, tags=b"\x01\x05\x01x") + b"\x02a\x021\x00"))
    send("header with too many tags", frame(header(18, 3, tags=b"\xff\xff\xff\xff\x0f")))
    send("body with a tag", frame(header(18, 3, tags=b"\x00") + b"\x02a\x021\x01\x07\x02xy"))
    send("tags out of order", frame(header(18, 3, tags=b"\x00") + b"\x02a\x021\x02\x07\x01x\x05\x01y"))
    send("tag twice", frame(header(18, 3, tags=b"\x00") + b"\x02a\x021\x02\x07\x01x\x07\x01y"))
    for key in (-1, 93, 999, 32767):
        send(f"API key {key}", frame(header(key, 0)))
    for newer in (-1, 6, 99, 32767):
        send(f"ApiVersions version {newer}", frame(header(18, newer, tags=b"\x00") + b"\x02a\x021\x00"))
    send("ApiVersions version 99 with no body", frame(header(18, 99)))
    send("ApiVersions version 99 with another body", frame(header(18, 99) + bytes(range(40))))
    cluster = DescribeClusterRequest(include_cluster_authorized_operations=False)
    whole = encode_request(ApiKeys.DESCRIBE_CLUSTER, 0, 1, "test", cluster)
    send("bytes behind the body", frame(whole + b"\0"))
    send(
        "bytes behind a Metadata body", frame(encode_request(3, 12, 1, "test", MetadataRequest(topics=[])) + b"\0\0\0")
    )
    send("boolean that is neither", frame(whole[:-2] + b"\x07\x00"))
    send("array of -2", frame(header(3, 1) + struct.pack(">i", -2)))
    send("array of -1", frame(header(3, 1) + struct.pack(">i", -1)))
    send("array of -1 where none is null", frame(header(37, 0) + struct.pack(">i", -1) + bytes(5)))
    send("array of 2**31 - 1", frame(header(3, 1) + struct.pack(">i", 2**31 - 1)))
    send("array longer than the body", frame(header(3, 1) + struct.pack(">i", 3) + b"\0\1a"))
    send("string of -1 where none is null", frame(header(3, 1) + struct.pack(">ih", 1, -1)))
    send("string that is not UTF-8", frame(header(3, 1) + struct.pack(">ih", 1, 2) + b"\xff\xfe"))
    for key, low, high in ((0, -1, 14), (1, 3, 19), (3, -1, 14), (19, -1, 8)):
        send(f"{ApiKeys(key).name} older than served", frame(header(key, low)))
        send(f"{ApiKeys(key).name} newer than served", frame(header(key, high, tags=b"\0") + bytes(30)))


@scenario(ApiKeys.API_VERSIONS)
def truncated_bodies(peer: Peer, version: int) -> None:
    """Every API in its newest version that all serve, cut at every byte."""
    if version:
        return
    entry = ProduceRequest.Topic.Partition(index=0, records=records(T0))
    topic = ProduceRequest.Topic(name="truncated", partition_data=[entry])
    produce = ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[topic])
    hello = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    samples = {
        "Metadata": encode_request(3, 12, 1, "test", MetadataRequest(topics=[], allow_auto_topic_creation=False)),
        "ApiVersions": encode_request(18, 3, 1, "test", hello),
        "Produce": encode_request(0, 9, 1, "test", produce),
    }  # fmt: skip
    for name, whole in samples.items():
        for length in range(8, len(whole)):
            peer.send_bytes(f"{name} cut at {length}", frame(whole[:length]))
