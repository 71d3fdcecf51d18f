"""The cluster, its log directories and the client itself, against a broker."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from clients.admin.members import eventually

from kafkapy import KafkaAdminClient as PublicName
from kafkapy.admin import KafkaAdminClient, ScramMechanism, UserScramCredentialDeletion, UserScramCredentialUpsertion
from kafkapy.errors import (
    BrokerNotAvailableError,
    IllegalArgumentError,
    IllegalStateError,
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaError,
    LogDirNotFoundError,
    NoBrokersAvailable,
    NodeNotReadyError,
    NoError,
)
from kafkapy.structs import TopicPartitionReplica
from kafkapy.testing.broker_process import BrokerProcess


def test_the_cluster_and_its_features(admin: KafkaAdminClient, broker: BrokerProcess) -> None:
    found = admin.describe_cluster()
    assert (found["controller_id"], len(found["cluster_id"])) == (1, 22)
    (one,) = found["brokers"]
    assert (one["broker_id"], one["host"], one["port"], one["rack"]) == (1, "127.0.0.1", broker.port, None)
    assert "CREATE" in found["authorized_operations"]
    features = admin.describe_features()
    assert features["transaction.version"]["supported"][1] >= features["transaction.version"]["finalized"][1] > 0
    assert admin.describe_features(send_request_to_controller=True) == features


def test_versions_are_told_by_key(admin: KafkaAdminClient) -> None:
    versions = admin.api_versions()
    assert versions[18] == (0, 5)
    assert {key.name for key in versions if hasattr(key, "name")} >= {"PRODUCE", "FETCH", "API_VERSIONS"}
    assert admin.get_broker_version_data(1) == versions
    with pytest.raises(BrokerNotAvailableError):
        admin.api_versions(5)


def test_replicas_move_between_log_directories(admin: KafkaAdminClient, topic: str) -> None:
    (described,) = admin.describe_log_dirs({topic: [0]})
    assert described["broker"] == 1
    places = {
        each["log_dir"]: [topic["name"] for topic in each["topics"] if topic["partitions"]]
        for each in described["log_dirs"]
    }
    assert len(places) == 2
    ((here, _),) = [(path, names) for path, names in places.items() if names == [topic]]
    (there,) = set(places) - {here}
    replica = TopicPartitionReplica(topic, 0, 1)
    assert admin.alter_replica_log_dirs({replica: there}) == {replica: NoError}

    def moved() -> bool:
        (described,) = admin.describe_log_dirs([topic], brokers=[1])
        found = {
            each["log_dir"]: [
                partition["is_future_key"]
                for topic in each["topics"]
                for partition in topic["partitions"]
                if partition["partition_index"] == 0
            ]
            for each in described["log_dirs"]
        }
        return found == {here: [], there: [False]}

    eventually(moved)
    assert admin.alter_replica_log_dirs({replica: "/nowhere"}) == {replica: LogDirNotFoundError}
    assert all(each["total_bytes"] >= each["usable_bytes"] > 0 for each in admin.describe_log_dirs()[0]["log_dirs"])


def test_what_is_no_alteration_of_credentials_is_said_before_it_is_sent(admin: KafkaAdminClient) -> None:
    with pytest.raises(IllegalArgumentError):
        admin.alter_user_scram_credentials(["alice"])  # type: ignore[list-item]
    with pytest.raises(IllegalArgumentError):
        UserScramCredentialUpsertion("alice", 0, "secret")
    assert UserScramCredentialDeletion("alice", "SCRAM-SHA-512").mechanism is ScramMechanism.SCRAM_SHA_512


def test_salted_passwords_are_those_of_rfc_5802() -> None:
    # The example of RFC 7677: user "user", password "pencil".
    import base64
    import hashlib
    import hmac

    made = UserScramCredentialUpsertion(
        "user", "scram_sha_256", "pencil", 4096, base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    )
    client_key = hmac.digest(made.salted_password, b"Client Key", "sha256")
    auth_message = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    signature = hmac.digest(hashlib.sha256(client_key).digest(), auth_message, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    assert base64.b64encode(proof) == b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert (made.mechanism, len(UserScramCredentialUpsertion("u", 2, "p").salt)) == (ScramMechanism.SCRAM_SHA_256, 24)


def test_names_and_keys_are_those_of_both_worlds(broker: BrokerProcess) -> None:
    assert PublicName is KafkaAdminClient
    with KafkaAdminClient({"bootstrap.servers": broker.bootstrap, "client.id": "dotted"}) as admin:
        assert admin.config["client.id"] == "dotted"
        assert isinstance(admin.list_topics(), list)
    with pytest.raises(KafkaConfigurationError, match=r"did you mean request\.timeout\.ms"):
        KafkaAdminClient(bootstrap_servers=broker.bootstrap, request_timeout=5)


def test_a_broker_that_is_not_there(broker: BrokerProcess) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(NoBrokersAvailable, match=address):
            KafkaAdminClient(bootstrap_servers=address, bootstrap_timeout_ms=200)


def test_a_closed_client_says_so_and_leaves_nothing_behind(broker: BrokerProcess) -> None:
    threads = threading.active_count()
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    clients = [KafkaAdminClient(bootstrap_servers=broker.bootstrap) for _ in range(3)]
    for client in clients:
        assert client.list_topics() is not None
        client.close()
        client.close()
        with pytest.raises(IllegalStateError):
            client.list_topics()
    eventually(lambda: threading.active_count() <= threads)
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors


def test_after_a_fork_the_client_is_the_parents(broker: BrokerProcess) -> None:
    program = f"""
import os
from kafkapy import KafkaAdminClient
from kafkapy.errors import IllegalStateError
admin = KafkaAdminClient(bootstrap_servers={broker.bootstrap!r})
child = os.fork()
if child == 0:
    try:
        admin.list_topics()
    except IllegalStateError:
        admin.close()
        os._exit(7)
    os._exit(8)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(admin.list_topics()) >= 0)
del admin
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (run.stdout, run.stderr, run.returncode) == ("7 True\n", "", 0)


def test_calls_go_on_over_a_restart_of_the_broker() -> None:
    with (
        BrokerProcess() as broker,
        KafkaAdminClient(bootstrap_servers=broker.bootstrap, default_api_timeout_ms=60000) as admin,
    ):
        admin.create_topics(["kept"])
        broker.kill()
        with KafkaAdminClientWithShortTime(admin) as impatient, pytest.raises(KafkaError) as caught:
            impatient.list_topics()
        assert isinstance(caught.value, (KafkaConnectionError, NodeNotReadyError))
        start = threading.Timer(0.3, broker.start)
        start.start()
        assert admin.list_topics() == ["kept"]
        assert admin.describe_topics(["kept"])[0]["error_code"] == 0
        start.join()


class KafkaAdminClientWithShortTime:
    """The same client for a block, with half a second for each call."""

    def __init__(self, admin: KafkaAdminClient) -> None:
        self._admin = admin
        self._config = admin._core.config

    def __enter__(self) -> KafkaAdminClient:
        self._admin._core.config = self._config.replaced(default_api_timeout_ms=500)
        return self._admin

    def __exit__(self, *_: object) -> None:
        self._admin._core.config = self._config
