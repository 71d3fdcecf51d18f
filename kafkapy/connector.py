"""The parts of the clients for connectors: records, segment files, Arrow columns.

A connector sends its own requests over a client's connections, keeps its own positions, and turns records into columns
without an object per record. These names are public and change like the rest of the public API.

    BytesFrame              a request whose bytes are ready, for NetworkClient.send
    FetchResponseFrame      a Fetch response that the I/O thread parses
    FetchedPartition        the records of one partition in a Fetch response
    ArrowColumns            columns to append records to
    SegmentBatches          batches of a segment file, read without a broker
    RecordBatchBuilder      a record batch of message format v2
    encode_message          a message of kafkapy.protocol as bytes
    partition_for_key       the partition of a key in Kafka's default partitioner (murmur2)
    crc32c                  CRC-32C of bytes
"""

from __future__ import annotations

from kafkapy._speedups.base.crc32c import crc32c
from kafkapy._speedups.base.murmur2 import partition_for_key
from kafkapy._speedups.clients.arrow.columns import ArrowColumns
from kafkapy._speedups.clients.consumer.fetch_frame import FetchResponseFrame
from kafkapy._speedups.clients.consumer.fetched_partition import FetchedPartition
from kafkapy._speedups.clients.consumer.segment_batches import BAD, DONE, MORE, OLD, SegmentBatches
from kafkapy._speedups.clients.io.frames import BytesFrame
from kafkapy._speedups.protocol.encoder import encode_message
from kafkapy._speedups.records.batch_builder import RecordBatchBuilder

__all__ = [
    "BAD",
    "DONE",
    "MORE",
    "OLD",
    "ArrowColumns",
    "BytesFrame",
    "FetchResponseFrame",
    "FetchedPartition",
    "RecordBatchBuilder",
    "SegmentBatches",
    "crc32c",
    "encode_message",
    "partition_for_key",
]
