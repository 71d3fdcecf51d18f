"""The twelve things that have to hold in a cluster of Apache Kafka and kafkapy on one ZooKeeper, for each release that
the mixed tests run with (make interop-java).

Brokers 1 and 2 are Apache Kafka's and there first; 3 and 4 are ours and join later. The tests share the cluster: each
one begins when all brokers live and all replicas are in sync.
"""

from __future__ import annotations

import json
import shutil
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from interop.conftest import JAVA
from interop.mixed import (
    JAVA_KIND,
    OURS,
    RELEASES,
    check_descriptions,
    check_replicas,
    kinds,
    make_controller,
    mixed_cluster,
    topic_config,
)
from kazoo.client import KazooClient  # type: ignore[import-untyped]
from peers.apache_kafka import free_port
from system.cluster.load import ConfluentLoad, TransactionalLoad, check_numbers, check_transactions
from system.cluster.processes import CLEAN, Cluster, JavaMember, Member, wait_until
from system.raw_client import RawClient

from kafkapy import KafkaConsumer, KafkaProducer
from kafkapy.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ConfigResource,
    DelegationToken,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafkapy.errors import ErrorCode, InvalidRequestError, RequestTimedOutError, TopicAuthorizationFailedError
from kafkapy.metadata.metadata_version import MetadataVersion
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkapy.protocol.messages.stop_replica import StopReplicaRequest
from kafkapy.protocol.messages.update_metadata import UpdateMetadataRequest
from kafkapy.types import TopicPartition

pytestmark = [*JAVA, pytest.mark.timeout(1800)]

KINDS = [OURS, JAVA_KIND]
PARTITIONS = 4
DISK = "disk"
SECRET = "a-secret"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
KEYS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
    "allow.everyone.if.no.acl.found": "true",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{MODULE} required user_admin="{SECRET}";',
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    "delegation.token.secret.key": "the secret of the tokens",
    "delegation.token.master.key": "the secret of the tokens",
}
"""What the check of ACLs, users and tokens needs; the brokers talk to each other without it."""
LAG = {"2.8": {"replica.lag.time.max.ms": "30000"}}
"""Leaders of 2.8 lose an ISR change that follows one to a controller that does not answer (KAFKA-12686), so they leave
it to the next controller to take a stopped one out of the ISRs."""


def prepare(member: Member | JavaMember) -> None:
    """A second listener with logins, and a second log directory."""
    member.port = free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{member.port},SASL_PLAINTEXT://127.0.0.1:{free_port()}"
    member.overrides["listeners"] = member.overrides["advertised.listeners"] = listeners
    member.overrides["log.dirs"] = f"{member.data_dir / 'logs'},{member.data_dir / DISK}"


def with_login(member: Member | JavaMember) -> str:
    """The address of the listener with logins."""
    return member.overrides["listeners"].rpartition("//")[2]


@pytest.fixture(scope="module", params=RELEASES)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    place = tmp_path_factory.mktemp("mixed")
    keys = KEYS | LAG.get(request.param, {})
    with mixed_cluster(place, request.param, (1, 2), count=2, overrides=keys, prepare=prepare) as cluster:
        cluster.create_topic("before", PARTITIONS, 2, min_insync_replicas="1")
        send(cluster, "before", range(100))
        cluster.add()
        cluster.add()
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    """The cluster, whole; and whole again."""
    yield shared
    for member in shared.members.values():
        if member.paused:
            member.resume()
    shared.start_all()
    # The metadata of the brokers forget a topic before its name is free.
    with shared.admin() as admin, zookeeper(shared) as client:

        def left() -> list[str]:
            return [name for name in client.get_children("/brokers/topics") if not name.startswith(("before", "__"))]

        def deleted() -> bool:
            # A controller on a busy machine answers before it is done, or too late.
            admin.delete_topics(left(), raise_errors=False)
            return not left()

        wait_until(lambda: not left() or deleted(), lambda: f"the topics are deleted: {left()}")
    shared.wait_until_in_sync()


# --- what the tests look at -------------------------------------------------------------------------------------------


def send(cluster: Cluster, topic: str, numbers: range) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        for future in [producer.send(topic, b"%d" % number, partition=number % PARTITIONS) for number in numbers]:
            future.get(60)


def read(cluster: Cluster, topic: str, count: int) -> list[int]:
    found: list[int] = []
    with KafkaConsumer(topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:

        def more() -> bool:
            for records in consumer.poll(500).values():
                found.extend(int(record.value) for record in records)
            return len(found) >= count

        wait_until(more, lambda: f"{count} records are there: {len(found)}")
    return sorted(found)


@contextmanager
def zookeeper(cluster: Cluster) -> Iterator[Any]:
    client = KazooClient(hosts=cluster.store.connect)  # type: ignore[union-attr]
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def node(cluster: Cluster, path: str) -> Any:
    """The JSON in a node."""
    with zookeeper(cluster) as client:
        return json.loads(client.get(path)[0])


def leaders(cluster: Cluster, topic: str) -> list[int]:
    return [int(each["leader_id"]) for each in cluster.describe([topic])[topic]]


def check_leaders(cluster: Cluster) -> None:
    """Each partition has a leader that lives, as each live broker tells."""
    live = {member.broker_id for member in cluster.live}

    def headless() -> list[str]:
        return [
            f"{topic}-{each['partition_index']} at broker {member.broker_id}: {each['leader_id']}"
            for member in cluster.live
            for topic, partitions in cluster.describe(None, member.broker_id).items()
            for each in partitions
            if each["leader_id"] not in live
        ]

    wait_until(lambda: not headless(), lambda: f"all partitions have leaders: {headless()}")


def reassign(cluster: Cluster, topic: str, replicas: Mapping[int, list[int]]) -> None:
    """Move partitions of a topic, and wait until all live brokers know the end."""
    with cluster.admin() as admin:
        moves = {TopicPartition(topic, number): brokers for number, brokers in replicas.items()}
        assert set(admin.alter_partition_reassignments(moves).values()) == {None}
        wait_until(lambda: not admin.list_partition_reassignments(), "the reassignments end")

    def told(broker: int) -> dict[int, list[int]]:
        partitions = cluster.describe([topic], broker)[topic]
        found = {each["partition_index"]: each["replica_nodes"] for each in partitions}
        return {number: found[number] for number in replicas}

    # The controller shows no reassignment any more before the others hear of its end.
    for member in cluster.live:
        at = member.broker_id
        wait_until(
            lambda at=at: told(at) == replicas,
            lambda at=at: f"broker {at} shows the replicas {replicas} of {topic}: {told(at)}",
        )


# --- the checks -------------------------------------------------------------------------------------------------------


def test_1_a_foreign_broker_joins_a_java_cluster(cluster: Cluster) -> None:
    make_controller(cluster, 1)
    moved = {0: [3, 1], 1: [1, 4], 2: [4, 3], 3: [2, 3]}
    reassign(cluster, "before", moved)
    with cluster.admin() as admin:
        admin.elect_leaders("preferred", {"before": range(PARTITIONS)}, raise_errors=False)
    wait_until(lambda: leaders(cluster, "before") == [3, 1, 4, 2], "the preferred replicas lead")
    cluster.wait_until_in_sync(["before"])
    assert read(cluster, "before", 100) == list(range(100))
    check_replicas(cluster, "before")
    cluster.create_topic("joined", PARTITIONS)
    assert {type(cluster[leader]).__name__ for leader in leaders(cluster, "joined")} == set(KINDS)
    send(cluster, "joined", range(200))
    assert read(cluster, "joined", 200) == list(range(200))
    assert "joined" in check_descriptions(cluster)
    check_replicas(cluster, "joined")


@pytest.mark.parametrize("kind", KINDS)
def test_2_brokers_join_a_controller_of_the_other_kind_that_is_killed(cluster: Cluster, kind: str) -> None:
    cluster.create_topic("killed", PARTITIONS)
    controller = kinds(cluster)[kind]
    make_controller(cluster, controller)
    others = [member for member in cluster.members.values() if type(member).__name__ != kind]
    for member in others:
        member.stop()
        member.start()
    cluster.wait_until_in_sync()
    load = ConfluentLoad(cluster.bootstrap, "killed", PARTITIONS)
    try:
        wait_until(lambda: load.confirmed > 200, "records are acknowledged")
        epoch = node(cluster, "/controller_epoch")
        cluster[controller].kill()
        wait_until(lambda: cluster.controller() != controller, "another broker is the controller")
        assert node(cluster, "/controller_epoch") == epoch + 1
        check_leaders(cluster)
        before = load.confirmed
        wait_until(lambda: load.confirmed > before, "records are acknowledged without the controller")
        cluster[controller].start()
    finally:
        load.finish()
    cluster.wait_until_in_sync()
    check_numbers(cluster.bootstrap, load)
    check_descriptions(cluster)


@pytest.mark.parametrize("kind", KINDS)
def test_3_a_controller_whose_session_expires_writes_nothing(cluster: Cluster, kind: str) -> None:
    old = kinds(cluster)[kind]
    make_controller(cluster, old)
    cluster.create_topic("fenced", PARTITIONS)
    epoch = node(cluster, "/controller_epoch")
    registered = registration_epoch(cluster, old)
    cluster[old].pause()
    try:
        wait_until(lambda: cluster.controller() != old, "another broker is the controller")
        with cluster.admin() as admin:
            admin.create_topics({"meanwhile": {"num_partitions": PARTITIONS, "replication_factor": 3}})
    finally:
        cluster[old].resume()
    wait_until(
        lambda: registration_epoch(cluster, old) not in (0, registered), "the old controller is registered again"
    )
    cluster.wait_for_brokers()
    cluster.wait_until_in_sync()
    assert node(cluster, "/controller_epoch") == epoch + 1
    assert node(cluster, "/controller")["brokerid"] == cluster.controller() != old
    for topic in ("fenced", "meanwhile"):
        for partition in range(PARTITIONS):
            state = node(cluster, f"/brokers/topics/{topic}/partitions/{partition}/state")
            assert state["controller_epoch"] in ({epoch, epoch + 1} if topic == "fenced" else {epoch + 1}), state
    send(cluster, "meanwhile", range(40))
    assert read(cluster, "meanwhile", 40) == list(range(40))
    check_descriptions(cluster)


def registration_epoch(cluster: Cluster, broker_id: int) -> int:
    """The transaction that registered the broker, 0 without one: its broker epoch."""
    with zookeeper(cluster) as client:
        stat = client.exists(f"/brokers/ids/{broker_id}")
    return 0 if stat is None else int(stat.czxid)


def test_4_a_rolling_restart_fails_no_record(cluster: Cluster) -> None:
    cluster.create_topic("rolled", PARTITIONS)
    cluster.create_topic("rolled-transactions", PARTITIONS)
    loads = (
        ConfluentLoad(cluster.bootstrap, "rolled", PARTITIONS),
        TransactionalLoad(cluster.bootstrap, "rolled-transactions", PARTITIONS),
    )
    try:
        wait_until(lambda: loads[0].confirmed > 200 and loads[1].confirmed > 10, "both loads make progress")
        cluster.wait_until_in_sync()
        for member in cluster.members.values():
            assert member.stop(120) in CLEAN
            member.start()
            cluster.wait_until_in_sync()
    finally:
        for load in loads:
            load.finish()
    check_numbers(cluster.bootstrap, loads[0])
    check_transactions(cluster.bootstrap, loads[1])
    check_descriptions(cluster)
    check_replicas(cluster, "rolled")


@pytest.mark.parametrize("controller", KINDS)
@pytest.mark.parametrize("stopped", [3, 1], ids=KINDS)
def test_5_a_controlled_shutdown_moves_leaders_before_the_end(cluster: Cluster, controller: str, stopped: int) -> None:
    wanted = next(each.broker_id for each in cluster.members.values()
                  if type(each).__name__ == controller and each.broker_id != stopped)  # fmt: skip
    make_controller(cluster, wanted)
    cluster.create_topic("shut", PARTITIONS)
    with cluster.admin() as admin:
        admin.create_partitions({"shut": PARTITIONS + 1})
    reassign(cluster, "shut", {PARTITIONS: [stopped, wanted]})
    path = f"/brokers/topics/shut/partitions/{PARTITIONS}/state"
    with cluster.admin() as admin:
        admin.elect_leaders("preferred", {"shut": [PARTITIONS]}, raise_errors=False)
    wait_until(lambda: node(cluster, path)["leader"] == stopped, "the broker leads")
    with zookeeper(cluster) as client:
        moved: list[tuple[bool, Any]] = []

        def changed(_: Any) -> None:
            state = json.loads(client.get(path)[0])
            moved.append((client.exists(f"/brokers/ids/{stopped}") is not None, state))

        client.get(path, watch=changed)
        assert cluster[stopped].stop(120) in CLEAN
        wait_until(lambda: moved, "the partition has another leader")
    registered, state = moved[0]
    assert registered, "the broker was gone when its partition moved"
    assert (state["leader"], state["isr"]) == (wanted, [wanted])
    check_leaders(cluster)


@pytest.mark.parametrize("kind", KINDS)
def test_6_topics_with_a_dead_broker(cluster: Cluster, kind: str) -> None:
    # A Java broker that was dead when a partition moved away takes its log for that of a later topic of the name.
    kept = f"kept-{kind}"
    make_controller(cluster, kinds(cluster)[kind])
    controller = cluster.controller()
    cluster.create_topic("doomed", PARTITIONS, 4)
    cluster.create_topic(kept, PARTITIONS, 3)
    send(cluster, kept, range(100))
    dead = next(each for each in cluster.members if type(cluster[each]).__name__ != kind)
    cluster[dead].kill()
    live = [each for each in cluster.members if each != dead]
    wait_until(
        lambda: all(dead not in each["isr_nodes"] for each in cluster.describe([kept])[kept]),
        "the dead broker is out of the ISR",
    )
    with cluster.admin() as admin:
        admin.create_topics({"late": {"num_partitions": PARTITIONS, "replication_factor": 3}})
        # The controller's answer comes when the client's time is over, too.
        with suppress(RequestTimedOutError):
            admin.delete_topics(["doomed"], raise_errors=False, timeout_ms=5000)
        admin.elect_leaders("preferred", raise_errors=False)
    cluster.wait_until_in_sync(["late"])
    reassign(cluster, kept, {number: live[number % 3 :] + live[: number % 3] for number in range(PARTITIONS)})
    with cluster.admin() as admin:
        admin.elect_leaders("preferred", {kept: range(PARTITIONS)}, raise_errors=False)
    wanted = [live[number % 3] for number in range(PARTITIONS)]
    wait_until(lambda: leaders(cluster, kept) == wanted, "the preferred replicas lead")
    with zookeeper(cluster) as client:
        assert client.exists("/brokers/topics/doomed"), "a topic with a replica on a dead broker waits"
        assert cluster.controller() == controller
        cluster[dead].start()
        wait_until(lambda: not client.exists("/brokers/topics/doomed"), "the topic is deleted")
        # Controllers of Apache Kafka remove the order last.
        wait_until(lambda: not client.exists("/admin/delete_topics/doomed"), "the deletion is complete")
    cluster.wait_until_in_sync()
    for member in cluster.members.values():
        places = [member.data_dir / "logs", member.data_dir / DISK]
        wait_until(
            lambda places=places: not [path for place in places for path in place.glob("doomed-*")], "the files go too"
        )
    assert read(cluster, kept, 100) == list(range(100))
    assert "doomed" not in check_descriptions(cluster)
    check_replicas(cluster, kept)


@pytest.mark.parametrize("broken", [3, 1], ids=KINDS)
def test_7_a_log_directory_fails_at_a_leader_and_at_a_follower(cluster: Cluster, broken: int) -> None:
    member = cluster[broken]
    # Two partitions will have two replicas, one of them on the directory that fails.
    cluster.create_topic("disks", 2 * PARTITIONS, 4, min_insync_replicas="1")
    send(cluster, "disks", range(80))
    place = member.data_dir / DISK
    # The logs of a topic deleted a moment ago may still be there, with a suffix.
    names = {path.name for path in place.glob("disks-*")}
    hit = [number for number in range(2 * PARTITIONS) if f"disks-{number}" in names]
    assert 0 < len(hit) < 2 * PARTITIONS
    other = next(each for each in cluster.members if each != broken)
    orders = {hit[0]: [broken, other], hit[1]: [other, broken]}
    reassign(cluster, "disks", orders)
    with cluster.admin() as admin:
        admin.elect_leaders("preferred", {"disks": list(orders)}, raise_errors=False)
    wait_until(lambda: [leaders(cluster, "disks")[each] for each in orders] == [broken, other], "both roles are there")
    shutil.move(place, place.with_name("away"))
    place.touch()
    try:
        # The next checkpoint, of a high watermark or of a log's start, cannot be written.
        wait_until(
            lambda: all(broken not in cluster.describe(["disks"])["disks"][each]["isr_nodes"] for each in hit),
            "the replicas of the directory leave the ISR",
        )
        assert member.alive
        check_leaders(cluster)
        told = cluster.describe(["disks"], other)["disks"]
        assert all(broken in each["isr_nodes"] for each in told if each["partition_index"] not in hit
                   and broken in each["replica_nodes"])  # fmt: skip
        send(cluster, "disks", range(80, 120))
    finally:
        member.stop(120)
        place.unlink()
        shutil.move(place.with_name("away"), place)
        member.start()
    cluster.wait_until_in_sync()
    assert read(cluster, "disks", 120) == list(range(120))
    check_replicas(cluster, "disks")


@pytest.mark.parametrize("through", [3, 1], ids=KINDS)
def test_8_settings_written_through_one_broker_hold_on_all(cluster: Cluster, through: int) -> None:
    cluster.create_topic("settings", 1)
    user, pause = f"user-{through}", f"2000{through}"
    with KafkaAdminClient(bootstrap_servers=cluster[through].bootstrap) as admin:
        admin.alter_configs(
            [
                ConfigResource("topic", "settings", {"retention.ms": f"12345{through}"}),
                ConfigResource("broker", "", {"log.cleaner.backoff.ms": pause}),
            ]
        )
        admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_256, SECRET, iterations=4096)]
        )
        pattern = ResourcePattern(ResourceType.TOPIC, "settings")
        allow = ACL("User:*", "*", ACLOperation.ALL, ACLPermissionType.ALLOW, pattern)
        deny = ACL(f"User:{user}", "*", ACLOperation.WRITE, ACLPermissionType.DENY, pattern)
        assert admin.add_acls([allow, deny]) == [None, None]

    def token() -> DelegationToken:
        with KafkaAdminClient(bootstrap_servers=with_login(cluster[through]), **scram(user, SECRET)) as admin:
            return admin.create_delegation_token()

    made = wait_until(token, "the user gets a token")
    logins = {
        "the password": scram(user, SECRET),
        "the token": scram(made.token_id, b64encode(made.hmac).decode(), "tokenauth=true"),
    }
    for member in cluster.members.values():
        name = f"broker {member.broker_id}"
        wait_until(
            lambda member=member: (
                topic_config(cluster, member.broker_id, "settings", "retention.ms") == f"12345{through}"
            ),
            f"{name} knows the topic's configuration",
        )
        for what, login in logins.items():
            wait_until(
                lambda member=member, login=login: is_denied(member, login),
                f"{name} takes {what} and applies the ACL to its owner",
            )
        wait_until(lambda member=member: cleaner_pause(member) == pause, f"{name} knows the default of all brokers")


def scram(user: str, password: str, more: str = "") -> dict[str, Any]:
    """The options of a client that logs in by SCRAM."""
    jaas = f'{SCRAM_MODULE} required username="{user}" password="{password}" {more};'
    return {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": jaas}


def is_denied(member: Member | JavaMember, login: dict[str, Any]) -> bool:
    """Whether the user is known, and may not write to the topic that all others may write to."""
    with KafkaProducer(bootstrap_servers=with_login(member), max_block_ms=20_000, **login) as producer:
        try:
            producer.send("settings", b"no").get(30)
        except TopicAuthorizationFailedError:
            return True
    return False


def cleaner_pause(member: Member | JavaMember) -> str:
    """log.cleaner.backoff.ms as the broker has it."""
    with KafkaAdminClient(bootstrap_servers=member.bootstrap) as admin:
        found = admin.describe_configs([ConfigResource("broker", str(member.broker_id))], config_filter="all")
    return str(found["broker"][str(member.broker_id)]["log.cleaner.backoff.ms"]["value"])


def test_9_no_feature_is_ever_finalized(cluster: Cluster) -> None:
    for kind in KINDS:
        make_controller(cluster, kinds(cluster)[kind])
        assert node(cluster, "/feature")["features"] == {}
        with cluster.admin() as admin:
            assert not any("finalized" in feature for feature in admin.describe_features().values())
            if kind == OURS:
                with pytest.raises(InvalidRequestError, match="is not supported"):
                    admin.update_features({"group.version": 1})
            else:
                # The version of its request has a result of each feature.
                assert "is not supported" in admin.update_features({"group.version": 1})["group.version"]
        assert node(cluster, "/feature")["features"] == {}
        assert all(member.alive for member in cluster.members.values())


def test_10_producer_ids_of_all_brokers_differ(cluster: Cluster) -> None:
    found: list[int] = []

    def one(member: Member | JavaMember) -> int:
        client = RawClient(member.bootstrap)
        try:
            answer = client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 1)
        finally:
            client.close()
        return int(answer.producer_id) if answer.error_code == ErrorCode.NONE else -1

    def given(member: Member | JavaMember) -> int:
        got: list[int] = []

        def asked() -> bool:
            got.append(one(member))
            return got[-1] >= 0

        wait_until(asked, f"broker {member.broker_id} hands out a producer id")
        return got[-1]

    for kind in KINDS:
        make_controller(cluster, kinds(cluster)[kind])
        for _ in range(3):
            found += [given(member) for member in cluster.members.values()]
        # A broker that starts again takes another block.
        for member in (cluster[1], cluster[3]):
            member.stop()
            member.start()
            found.append(given(member))
    assert len(set(found)) == len(found), sorted(found)


def test_11_a_coordinator_moves_in_the_middle_of_a_transaction(cluster: Cluster) -> None:
    cluster.create_topic("moving", PARTITIONS)
    state = "__transaction_state"
    with KafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id="mover") as producer:
        producer.init_transactions()
        names = cluster.describe([state])[state]
        for number, to in enumerate([3, 1, 4, 2, 3]):
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                producer.send("moving", b"%d" % number, partition=partition)
            producer.flush()
            reassign(cluster, state, {each["partition_index"]: [to, to % 4 + 1, (to + 1) % 4 + 1] for each in names})
            with cluster.admin() as admin:
                admin.elect_leaders("preferred", {state: [each["partition_index"] for each in names]},
                                    raise_errors=False)  # fmt: skip
            wait_until(lambda to=to: set(leaders(cluster, state)) == {to}, f"broker {to} coordinates")
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    found: list[int] = []
    with KafkaConsumer("moving", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest",
                       isolation_level="read_committed") as consumer:  # fmt: skip

        def more() -> bool:
            for records in consumer.poll(500).values():
                found.extend(int(record.value) for record in records)
            return len(found) >= 3 * PARTITIONS

        wait_until(more, lambda: f"all committed records are there: {found}")
    assert sorted(found) == sorted([0, 2, 4] * PARTITIONS)


@pytest.mark.parametrize("broker", [3, 1], ids=KINDS)
def test_12_requests_for_an_earlier_life_bounce(cluster: Cluster, broker: int) -> None:
    member = cluster[broker]
    cluster.create_topic("bounced", PARTITIONS)
    earlier = registration_epoch(cluster, broker)
    member.kill()
    member.start()  # inside the session of its former life
    wait_until(lambda: registration_epoch(cluster, broker) not in (0, earlier), "the broker is registered again")
    cluster.wait_until_in_sync()
    now = registration_epoch(cluster, broker)
    version = MetadataVersion.parse(member.overrides["inter.broker.protocol.version"])
    controller, epoch = cluster.controller(), node(cluster, "/controller_epoch")
    client = RawClient(member.bootstrap)
    stale: list[tuple[Callable[[int], Any], int]] = [
        (lambda at: StopReplicaRequest(controller_id=controller, controller_epoch=epoch, broker_epoch=at),
         version.stop_replica_version),
        (lambda at: UpdateMetadataRequest(controller_id=controller, controller_epoch=epoch, broker_epoch=at),
         version.update_metadata_version),
    ]  # fmt: skip
    try:
        for make, number in stale:
            assert client.call(make(earlier), number).error_code == ErrorCode.STALE_BROKER_EPOCH
        # The same about its present life is from an old controller.
        for make, number in stale:
            request = make(now)
            request.controller_epoch = epoch - 1
            assert client.call(request, number).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    finally:
        client.close()
    send(cluster, "bounced", range(20))
    check_descriptions(cluster)
