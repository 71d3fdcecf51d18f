"""What a checker of types says of programs with the clients, and that the keywords it knows are those there are."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import get_type_hints

import pytest

from kafkapy.clients.aio.admin import AIO_ADMIN
from kafkapy.clients.aio.client import AIO_CLIENT
from kafkapy.clients.aio.consumer import AIO_CONSUMER
from kafkapy.clients.aio.producer import AIO_PRODUCER
from kafkapy.clients.aio.share_consumer import AIO_SHARE_CONSUMER
from kafkapy.config import options
from kafkapy.config.admin import ADMIN
from kafkapy.config.clients import COMMON, ClientConfigDef
from kafkapy.config.consumer import CONSUMER
from kafkapy.config.producer import PRODUCER
from kafkapy.config.share_consumer import SHARE_CONSUMER

DEFINITIONS: Mapping[type, ClientConfigDef] = {
    options.ClientOptions: COMMON,
    options.ConsumerOptions: CONSUMER,
    options.ShareConsumerOptions: SHARE_CONSUMER,
    options.ProducerOptions: PRODUCER,
    options.AdminOptions: ADMIN,
    options.AIOClientOptions: AIO_CLIENT,
    options.AIOConsumerOptions: AIO_CONSUMER,
    options.AIOShareConsumerOptions: AIO_SHARE_CONSUMER,
    options.AIOProducerOptions: AIO_PRODUCER,
    options.AIOAdminOptions: AIO_ADMIN,
}

PROGRAM = """
import asyncio
from typing import Any

from kafkapy import ConsumerRecord, KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafkapy.aio import AIOKafkaAdminClient, AIOKafkaClient, AIOKafkaConsumer, AIOKafkaProducer

consumer = KafkaConsumer("t", group_id="g", auto_offset_reset="earliest", max_poll_records=10, enable_auto_commit=False)
reveal_type(next(consumer))
for record in consumer:
    reveal_type(record)
    text: str = record.topic
    record.ofset  # attr-defined
for records in consumer.poll(10).values():
    reveal_type(records)
KafkaConsumer("t", group_idd="g")  # call-arg
KafkaConsumer(bootstrap_servers=["a:9092", "b:9092"], consumer_timeout_ms=float("inf"), client_id=None)
KafkaConsumer(max_poll_records=[5])  # arg-type
KafkaProducer(linger_ms=5, acks="all", compression_type="zstd", value_serializer=str.encode)
KafkaProducer(lingerms=5)  # call-arg
KafkaAdminClient(client_id="a", request_timeout_ms="500")
KafkaAdminClient(group_id="a")  # call-arg
KafkaAdminClient(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_plain_username="a", ssl_cafile="ca.pem")
KafkaAdminClient(ssl_ca_fil="ca.pem")  # call-arg
settings: dict[str, Any] = {"linger_ms": 5}
KafkaProducer({"linger.ms": 5}, **settings)


async def main() -> None:
    async with AIOKafkaConsumer("t", group_id="g", session_timeout_ms=10000) as reader:
        async for record in reader:
            reveal_type(record)
        reveal_type(await reader.getone())
    AIOKafkaConsumer("t", group="g")  # call-arg
    AIOKafkaProducer(max_batch_size=100)
    AIOKafkaProducer(max_batchsize=100)  # call-arg
    AIOKafkaAdminClient(client_idd="a")  # call-arg
    AIOKafkaClient(bootstrap_server="a")  # call-arg


asyncio.run(main())
"""


@pytest.mark.parametrize("kind", DEFINITIONS, ids=lambda kind: kind.__name__)
def test_the_keywords_that_have_types_are_those_there_are(kind: type) -> None:
    definition = DEFINITIONS[kind]
    named = {*(key.name for key in definition), *definition.aliases, *definition.without_effect}
    assert {*get_type_hints(kind)} == {name.replace(".", "_") for name in named}
    for name in get_type_hints(kind):
        definition.key_of(name)  # does not raise


def test_a_program_is_checked(tmp_path: Path, cache: pytest.Cache) -> None:
    program = tmp_path / "program.py"
    # mypy repeats what it said of the same text in another run, with the path of that run.
    program.write_text(f"{PROGRAM}# {program}\n", encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context"]
    command += ["--config-file", "", "--cache-dir", str(cache.mkdir("mypy")), str(program)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert done.stderr == ""
    said: dict[int, list[str]] = {}
    for line in done.stdout.splitlines():
        if line.startswith(str(program)):
            number, _, message = line.removeprefix(f"{program}:").partition(": ")
            said.setdefault(int(number), []).append(message)
    for number, line in enumerate(PROGRAM.splitlines(), 1):
        messages = said.pop(number, [])
        if "reveal_type" in line:
            (message,) = messages
            assert message.startswith("note: Revealed type is"), line
            assert "consumer_record.ConsumerRecord" in message, line
        elif "  # " in line:
            assert any(message.endswith(f"[{line.partition('  # ')[2]}]") for message in messages), (line, messages)
        else:
            assert messages == [], line
    assert said == {}
