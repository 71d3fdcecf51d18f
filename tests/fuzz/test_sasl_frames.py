"""Random and broken frames before the authentication: the broker refuses them, and goes on serving."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from broker.sasl_broker import add_scram_user, log_in_scram, open_connection, sasl_config

from kafkapy.broker.server import KafkaServer
from kafkapy.protocol.header import encode_request
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
from kafkapy.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkapy.protocol.messages.sasl_handshake import SaslHandshakeRequest

SEED = 21
CONNECTIONS = 300


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with KafkaServer(sasl_config(tmp_path_factory.mktemp("fuzz"))) as started:
        add_scram_user(started, "scram", "pencil")
        yield started


def frames(generator: random.Random) -> list[bytes]:
    """The frames of a login by SCRAM or PLAIN, in any order, with broken bytes."""
    mechanism = generator.choice(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", ""])
    handshake = SaslHandshakeRequest(mechanism=mechanism)
    tokens = [b"\0alice\0wonder", b"n,,n=scram,r=abc", b"c=biws,r=abc,p=AAAA", generator.randbytes(50), b""]
    made = [
        encode_request(17, generator.choice([0, 1]), 1, "fuzz", handshake),
        encode_request(18, 3, 2, "fuzz", ApiVersionsRequest(client_software_name="f", client_software_version="1")),
        *(encode_request(36, generator.choice([0, 1, 2]), 3, "fuzz", SaslAuthenticateRequest(auth_bytes=each))
          for each in tokens),
        *tokens,
    ]
    if generator.random() < 0.7:
        rest = made[1:]
        generator.shuffle(rest)
        made = [made[0], *rest]
    else:
        generator.shuffle(made)
    for _ in range(generator.randrange(4)):
        at = generator.randrange(len(made))
        frame = bytearray(made[at] or b"\0")
        if generator.random() < 0.5:
            frame[generator.randrange(len(frame))] ^= 1 << generator.randrange(8)
        else:
            del frame[generator.randrange(len(frame)) :]
        made[at] = bytes(frame)
    return made


def test_no_frame_before_the_authentication_breaks_the_broker(
    server: KafkaServer, caplog: pytest.LogCaptureFixture
) -> None:
    generator = random.Random(SEED)
    for _ in range(CONNECTIONS):
        client = open_connection(server)
        try:
            for frame in frames(generator)[: generator.randrange(1, 6)]:
                client.send_frame(frame)
                if generator.random() < 0.5:
                    client.receive_frame()
        except (ConnectionError, BrokenPipeError):
            pass
        finally:
            client.close()
    client = open_connection(server)
    assert log_in_scram(client, "SCRAM-SHA-256", "scram", "pencil").error_code == 0
    client.close()
    assert not [record for record in caplog.records if record.exc_info is not None]
