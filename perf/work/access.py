"""W9: logins by SCRAM, and Produce where 1,000 ACLs stand."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import measure
from client import Client, record_batch, value
from peers import LIMIT, Peer

from kafkapy.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kafkapy.protocol.messages.create_acls import CreateAclsRequest
from kafkapy.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkapy.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kafkapy.types import AclOperation, AclPermissionType, PatternType, ResourceType
from work import tls
from work.produce import Cell
from work.session import Metrics, Session

USER, PASSWORD, ITERATIONS = "alice", b"alice-secret", 4096
SCRAM_SHA_256 = 1
MECHANISM = "SCRAM-SHA-256"
CLIENTS = 8
ACLS = 1000
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


def _scram_keys(_peer: Peer, _pem: Path) -> dict[str, str]:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    return {
        "sasl.enabled.mechanisms": MECHANISM,
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": module,
    }


def logins(session: Session) -> None:
    """Pinned; a connection, a login by SCRAM-SHA-256, and the next one. The clients know the salted password."""
    with tls.secured(session, "SASL_PLAINTEXT", _scram_keys, with_limit=False) as brokers:
        salt = os.urandom(16)
        salted = hashlib.pbkdf2_hmac("sha256", PASSWORD, salt, ITERATIONS)
        for name, each in list(brokers.items()):
            try:
                _add_user(each, salt, salted)
            except Exception as error:
                session.fail(name, "adding the user", error)
                del brokers[name]
        calls = {name: _log_in_often(session, each, salted) for name, each in brokers.items()}
        session.in_turns(f"logins by {MECHANISM}, {CLIENTS} clients", calls)


def _add_user(each: tls.Secured, salt: bytes, salted: bytes) -> None:
    upsertion = AlterUserScramCredentialsRequest.Upsertion(
        name=USER, mechanism=SCRAM_SHA_256, iterations=ITERATIONS, salt=salt, salted_password=salted
    )
    with Client(each.broker.port) as client:
        answer = client.call(AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]), 0)
    if answer.results[0].error_code:
        raise RuntimeError(f"AlterUserScramCredentials: {answer.results[0].error_message}")
    # A broker learns of the user a moment later.
    deadline = time.monotonic() + 30.0
    while True:
        try:
            log_in(each.secure_port, salted)
            return
        except (OSError, RuntimeError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def log_in(port: int, salted: bytes) -> None:
    """Opens a connection, logs in and closes it. RuntimeError when the broker refuses, or proves nothing."""
    nonce = base64.b64encode(os.urandom(18)).decode()
    first = f"n={USER},r={nonce}"
    with Client(port, timeout_s=30.0) as client:
        if client.call(SaslHandshakeRequest(mechanism=MECHANISM), 1).error_code:
            raise RuntimeError(f"{MECHANISM} is not enabled")
        challenge = _authenticate(client, f"n,,{first}")
        without_proof = f"c=biws,r={challenge.split(',')[0][2:]}"
        signed = f"{first},{challenge},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        verdict = _authenticate(client, f"{without_proof},p={base64.b64encode(proof).decode()}")
        expected = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), signed, "sha256")
        if verdict != f"v={base64.b64encode(expected).decode()}":
            raise RuntimeError(f"the broker proved nothing: {verdict}")


def _authenticate(client: Client, message: str) -> str:
    answer = client.call(SaslAuthenticateRequest(auth_bytes=message.encode()), 1)
    if answer.error_code:
        raise RuntimeError(f"SaslAuthenticate: {answer.error_code} {answer.error_message}")
    return bytes(answer.auth_bytes).decode()


def _log_in_often(session: Session, each: tls.Secured, salted: bytes) -> Callable[[], Metrics]:
    def measured() -> Metrics:
        taken: list[float] = []
        failures: list[Exception] = []
        end = time.perf_counter() + session.seconds(1.0, 0.3)

        def client() -> None:
            try:
                while (begin := time.perf_counter()) < end:
                    log_in(each.secure_port, salted)
                    taken.append(time.perf_counter() - begin)
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
        with measure.on_cores(measure.load_cores(True)):
            begin, broker, load = time.perf_counter(), measure.cpu_seconds(each.broker.pid), time.process_time()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            seconds = time.perf_counter() - begin
            broker = measure.cpu_seconds(each.broker.pid) - broker
            load = time.process_time() - load
        if failures or not taken:
            raise failures[0] if failures else RuntimeError("no login was done in time")
        taken.sort()
        return {
            "logins_per_s": len(taken) / seconds,
            "cpu_us_per_request": broker / len(taken) * 1e6,
            "p50_us": taken[len(taken) // 2] * 1e6,
            "p99_us": taken[len(taken) * 99 // 100] * 1e6,
            "load_cores": load / seconds,
        }

    return measured


def acls(session: Session) -> None:
    """Pinned; one record of 1 KB a request, 64 connections, with 1,000 ACLs of topics."""
    peers = [peer for peer in session.peers if peer is not LIMIT and peer.name not in tls.WITHOUT_SECURITY]
    some = Session(peers, session.rounds, session.smoke, session.data_dir, session.rows, session.errors, session.work)
    with some.running(with_limit=False, overrides=AUTHORIZER) as brokers, some.folder("frames") as folder:
        for name, broker in list(brokers.items()):
            try:
                _add_acls(broker.port)
            except Exception as error:
                some.fail(name, "adding the ACLs", error)
                del brokers[name]
        cell = Cell(some, folder, [record_batch([value(1000, random.Random(5))])], 1, 64, 1)
        calls = {name: cell.round(name, broker, True) for name, broker in brokers.items()}
        some.in_turns(f"produce one 1 KB record a request, {ACLS:,} ACLs", calls)


def _add_acls(port: int) -> None:
    def creation(pattern: PatternType, topic: str, principal: str) -> CreateAclsRequest.Creation:
        return CreateAclsRequest.Creation(
            resource_type=ResourceType.TOPIC,
            resource_name=topic,
            resource_pattern_type=pattern,
            principal=principal,
            host="*",
            operation=AclOperation.ALL,
            permission_type=AclPermissionType.ALLOW,
        )

    creations = [creation(PatternType.LITERAL, f"w-w9-{number}", f"User:user-{number}") for number in range(ACLS - 1)]
    creations.append(creation(PatternType.PREFIXED, "w-w9-", "User:ANONYMOUS"))
    with Client(port) as client:
        answer = client.call(CreateAclsRequest(creations=creations), 3)
    refused = [result for result in answer.results if result.error_code]
    if refused:
        raise RuntimeError(f"CreateAcls: {refused[0].error_code} {refused[0].error_message}")
