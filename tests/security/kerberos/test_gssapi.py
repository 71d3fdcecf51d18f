"""GSSAPI of broker and client against a real key distribution centre of MIT."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kerberos_realm import REALM, Realm, kerberos_realm, needs_kerberos

from kafkapy.clients.sasl.base import SaslSettings
from kafkapy.clients.sasl.gssapi import GssapiLogin
from kafkapy.clients.sasl.logins import create_login
from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import ConfigError, KafkaConnectionError, SaslAuthenticationFailedError
from kafkapy.security.jaas import parse_jaas
from kafkapy.security.kerberos import library
from kafkapy.security.kerberos.jaas import KerberosOptions, kerberos_options
from kafkapy.security.kerberos.tickets import RenewalSettings, Tickets, pause_before_renewal
from kafkapy.security.sasl.base import MechanismSettings, SaslError, SaslServer
from kafkapy.security.sasl.gssapi import GssapiMechanism

pytestmark = needs_kerberos
MODULE = "com.sun.security.auth.module.Krb5LoginModule"


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with kerberos_realm(tmp_path_factory.mktemp("realm")) as realm, pytest.MonkeyPatch.context() as patch:
        for name, value in realm.environment.items():
            patch.setenv(name, value)
        realm.add("kafka/localhost")
        realm.add("alice")
        yield realm


def keytab(realm: Realm, principal: str) -> Path:
    return realm.directory / f"{principal.replace('/', '_')}.keytab"


def listener(jaas: str | None, **keys: str) -> MechanismSettings:
    config = BrokerConfig.from_properties({name.replace("_", "."): value for name, value in keys.items()})
    return MechanismSettings("GSSAPI", "SASL", config, () if jaas is None else parse_jaas(jaas))


def server_jaas(realm: Realm, principal: str | None = f"kafka/localhost@{REALM}", name: str = "kafka/localhost") -> str:
    shown = "" if principal is None else f' principal="{principal}"'
    return f'{MODULE} required useKeyTab=true storeKey=true keyTab="{keytab(realm, name)}"{shown};'


async def mechanism(settings: MechanismSettings) -> GssapiMechanism:
    made = GssapiMechanism()
    await made.configure(settings, None)  # type: ignore[arg-type]
    return made


def client_settings(options: Mapping[str, str] | None = None, **config: Any) -> SaslSettings:
    return SaslSettings("GSSAPI", options or {}, {name.replace("_", "."): value for name, value in config.items()})


def alice(realm: Realm) -> SaslSettings:
    return client_settings({"useKeyTab": "true", "keyTab": str(keytab(realm, "alice")), "principal": f"alice@{REALM}"})


async def log_in(login: Any, server: SaslServer, host: str = "localhost") -> None:
    """The whole exchange of both sides."""
    try:
        client = await login.exchange(host)
        token = client.initial()
        while True:
            last = client.complete
            answer = await server.evaluate(token)
            if last:
                break
            token = client.evaluate(answer)
            assert token is not None
        assert answer == b""
    finally:
        await login.close()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


# --- both sides ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("principal", [f"kafka/localhost@{REALM}", "kafka/localhost", "*", None])
def test_a_client_with_a_keytab_logs_in(realm: Realm, principal: str | None) -> None:
    async def test() -> None:
        made = await mechanism(listener(server_jaas(realm, principal)))
        for _ in range(2):
            server = made.server()
            await log_in(create_login(alice(realm)), server)
            assert (server.complete, server.authorization_id, server.session_expires_ms) == (True, "alice", None)
        await made.close()

    run(test)


def test_a_client_with_a_ticket_cache_logs_in(realm: Realm) -> None:
    cache = realm.kinit(f"alice@{REALM}", keytab(realm, "alice"))

    async def test() -> None:
        made = await mechanism(listener(server_jaas(realm)))
        for options in (
            {"useTicketCache": "true", "ticketCache": str(cache)},
            {"useTicketCache": "true", "ticketCache": str(cache), "keyTab": "/none", "principal": f"alice@{REALM}"},
        ):
            server = made.server()
            await log_in(create_login(client_settings(options)), server)
            assert server.authorization_id == "alice"

    run(test)


def test_a_client_without_settings_uses_the_default_ticket_cache(
    realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{realm.kinit(f'alice@{REALM}', keytab(realm, 'alice'))}")

    async def test() -> None:
        made = await mechanism(listener(server_jaas(realm)))
        for config in (
            {},
            {"sasl_kerberos_service_name": "kafka", "sasl_kerberos_domain_name": "localhost"},
            {"sasl_kerberos_name": f"kafka/localhost@{REALM}"},
            {"sasl_kerberos_name": "kafka@localhost"},
        ):
            server = made.server()
            host = "localhost" if not config else "elsewhere"
            await log_in(create_login(client_settings(**config)), server, host)
            assert server.authorization_id == "alice"

    run(test)


def test_an_empty_ticket_cache_falls_back_to_the_keytab(realm: Realm, tmp_path: Path) -> None:
    options = dict(alice(realm).options) | {"useTicketCache": "true", "ticketCache": str(tmp_path / "none")}

    async def test() -> None:
        made = await mechanism(listener(server_jaas(realm)))
        server = made.server()
        await log_in(create_login(client_settings(options)), server)
        assert server.authorization_id == "alice"

    run(test)


def test_librdkafkas_keys_name_keytab_and_principal(realm: Realm) -> None:
    settings = client_settings(
        sasl_kerberos_keytab=str(keytab(realm, "alice")), sasl_kerberos_principal=f"alice@{REALM}"
    )

    async def test() -> None:
        made = await mechanism(listener(server_jaas(realm)))
        server = made.server()
        await log_in(create_login(settings), server)
        assert server.authorization_id == "alice"

    run(test)


def test_the_rules_map_the_principal(realm: Realm) -> None:
    realm.add("App.orders/host1")

    async def test() -> None:
        rules = r"RULE:[2:$1](App\..*)s/App\.(.*)/$1-service/,DEFAULT"
        made = await mechanism(listener(server_jaas(realm), sasl_kerberos_principal_to_local_rules=rules))
        options = {"keyTab": str(keytab(realm, "App.orders/host1")), "principal": f"App.orders/host1@{REALM}"}
        for settings, name in ((client_settings(options), "orders-service"), (alice(realm), "alice")):
            server = made.server()
            await log_in(create_login(settings), server)
            assert server.authorization_id == name

    run(test)


def test_a_principal_without_a_rule_is_refused(realm: Realm) -> None:
    async def test() -> None:
        made = await mechanism(
            listener(server_jaas(realm), sasl_kerberos_principal_to_local_rules="RULE:[2:$1]")
        )
        server = made.server()
        with pytest.raises(SaslError, match=f"Failed to set name for 'alice@{REALM}'.*No rules apply"):
            await log_in(create_login(alice(realm)), server)
        assert not server.complete

    run(test)


def test_an_empty_short_name_is_refused(realm: Realm) -> None:
    async def test() -> None:
        made = await mechanism(listener(server_jaas(realm), sasl_kerberos_principal_to_local_rules="RULE:[1:]"))
        with pytest.raises(SaslError, match="empty name"):
            await log_in(create_login(alice(realm)), made.server())

    run(test)


def test_a_rotated_keytab_is_used_without_a_restart(realm: Realm) -> None:
    """Old tickets stay valid as long as the keytab has the old key; new ones need the new key."""
    realm.add("kafka/rotated")
    file = keytab(realm, "kafka/rotated")

    async def test() -> None:
        made = await mechanism(listener(server_jaas(realm, f"kafka/rotated@{REALM}", "kafka/rotated")))
        for _ in range(2):
            server = made.server()
            await log_in(create_login(alice(realm)), server, "rotated")
            assert server.authorization_id == "alice"
            realm.keytab("kafka/rotated")

    run(test)
    assert file.exists()


# --- hostile clients ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [b"", b"\x00", b"\x60", b"garbage", b"\x60\x82\xff\xff", bytes(1000), b"\x60" * 5000])
def test_bytes_that_are_no_token_are_refused(realm: Realm, token: bytes) -> None:
    async def test() -> None:
        server = (await mechanism(listener(server_jaas(realm)))).server()
        with pytest.raises(SaslError, match="Kerberos refuses the client"):
            await server.evaluate(token)
        assert not server.complete

    run(test)


def test_a_huge_token_is_refused(realm: Realm) -> None:
    async def test() -> None:
        server = (await mechanism(listener(server_jaas(realm)))).server()
        with pytest.raises(SaslError, match="has 200000 bytes"):
            await server.evaluate(bytes(200_000))

    run(test)


def test_a_truncated_or_changed_first_token_logs_nobody_in(realm: Realm) -> None:
    """Some fields of a ticket are not protected: a token may pass with another value there."""

    async def test() -> None:
        made = await mechanism(listener(server_jaas(realm)))
        login = create_login(alice(realm))
        first = (await login.exchange("localhost")).initial()
        await login.close()
        step = max(1, len(first) // 60)
        for at in range(0, len(first), step):
            server = made.server()
            with pytest.raises(SaslError):
                await server.evaluate(first[:at])
            flipped = bytearray(first)
            flipped[at] ^= 0x40
            server = made.server()
            try:
                await server.evaluate(bytes(flipped))
            except SaslError:
                continue
            assert str(server._context.initiator_name) == f"alice@{REALM}"
            assert not server.complete

    run(test)


async def offered(realm: Realm, made: GssapiMechanism) -> tuple[Any, Any, Any]:
    """Server, client and login, when the broker has offered its layer."""
    login = create_login(alice(realm))
    client, server = await login.exchange("localhost"), made.server()
    context_token = await server.evaluate(client.initial())
    assert client.evaluate(context_token) == b""
    return server, client, login


@pytest.mark.parametrize("answer", [b"", b"\x01", b"\x01\0\0", b"\0\0\0\0", b"\x02\0\0\0", b"\x05\0\0\0"])
def test_a_client_that_chooses_another_layer_is_refused(realm: Realm, answer: bytes) -> None:
    async def test() -> None:
        server, client, login = await offered(realm, await mechanism(listener(server_jaas(realm))))
        assert client._context.unwrap(await server.evaluate(b"")).message == b"\x01\x00\x00\x00"
        with pytest.raises(SaslError, match="security layer"):
            await server.evaluate(client._context.wrap(answer, False).message)
        assert not server.complete
        await login.close()

    run(test)


def test_an_authorization_id_has_no_meaning(realm: Realm) -> None:
    """kafka-python sends the broker's name, Java the client's principal: the ticket decides."""

    async def test() -> None:
        made = await mechanism(listener(server_jaas(realm)))
        for name in (b"", b"kafka@localhost", b"root", b"alice@KAFKA.TEST"):
            server, client, login = await offered(realm, made)
            await server.evaluate(b"")
            assert await server.evaluate(client._context.wrap(b"\x01\0\0\0" + name, False).message) == b""
            assert server.authorization_id == "alice"
            await login.close()

    run(test)


@pytest.mark.parametrize("plain", [b"\x01\x00\x00\x00", b"", b"\x05\x04" + bytes(30)])
def test_a_choice_that_is_not_wrapped_is_refused(realm: Realm, plain: bytes) -> None:
    """A replayed first token leads here, and its sender cannot wrap the choice without the session's key."""

    async def test() -> None:
        server, _, login = await offered(realm, await mechanism(listener(server_jaas(realm))))
        await server.evaluate(b"")
        with pytest.raises(SaslError, match="Kerberos refuses the client"):
            await server.evaluate(plain)
        assert not server.complete
        await login.close()

    run(test)


def test_a_token_between_context_and_offer_is_refused(realm: Realm) -> None:
    async def test() -> None:
        server, _, login = await offered(realm, await mechanism(listener(server_jaas(realm))))
        with pytest.raises(SaslError, match="after the security context was complete"):
            await server.evaluate(b"x")
        await login.close()

    run(test)


def test_nothing_follows_a_login(realm: Realm) -> None:
    async def test() -> None:
        server = (await mechanism(listener(server_jaas(realm)))).server()
        await log_in(create_login(alice(realm)), server)
        with pytest.raises(SaslError, match="complete already"):
            await server.evaluate(b"")

    run(test)


def test_a_ticket_for_another_service_is_refused(realm: Realm) -> None:
    realm.add("kafka/elsewhere")

    async def test() -> None:
        made = await mechanism(listener(server_jaas(realm)))
        with pytest.raises(SaslError, match="Kerberos refuses the client"):
            await log_in(create_login(alice(realm)), made.server(), "elsewhere")

    run(test)


# --- hostile brokers ----------------------------------------------------------------------------------------------


def test_a_client_refuses_what_is_not_the_broker(realm: Realm) -> None:
    async def test() -> None:
        login = create_login(alice(realm))
        for token in (b"", b"garbage", bytes(100)):
            client = await login.exchange("localhost")
            assert client.initial()
            with pytest.raises(SaslAuthenticationFailedError, match="GSSAPI failed"):
                client.evaluate(token)
            assert not client.complete
        await login.close()

    run(test)


@pytest.mark.parametrize("offer", [b"", b"\x01\0\0", b"\x02\0\0\0", b"\x04\0\xff\xff", b"\x01\0\0\0\0"])
def test_a_client_refuses_another_layer(realm: Realm, offer: bytes) -> None:
    async def test() -> None:
        server, client, login = await offered(realm, await mechanism(listener(server_jaas(realm))))
        with pytest.raises(SaslAuthenticationFailedError, match="security layer"):
            client.evaluate(server._context.wrap(offer, False).message)
        assert not client.complete
        await login.close()

    run(test)


# --- errors of settings -------------------------------------------------------------------------------------------


def test_a_missing_package_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "gssapi", None)
    for make in (lambda: create_login(client_settings()), lambda: asyncio.run(mechanism(listener(None)))):
        with pytest.raises(ConfigError, match=r"pip install 'kafkapy\[gssapi\]'"):
            make()


@pytest.mark.parametrize(
    ("jaas", "reason"),
    [
        (f'{MODULE} required keyTab="/none/kafka.keytab";', "/none/kafka.keytab cannot be used for kafka: No such"),
        (f"{MODULE} required useKeyTab=true;", "useKeyTab needs the option keyTab"),
        (f'{MODULE} required serviceName="other";', "serviceName is other, but sasl.kerberos.service.name is kafka"),
        ("org.apache.kafka.common.security.plain.PlainLoginModule required;", "must have an entry of com.sun"),
        (None, "the default keytab cannot be used"),
    ],
)
def test_wrong_settings_of_a_listener_are_refused(
    realm: Realm, monkeypatch: pytest.MonkeyPatch, jaas: str | None, reason: str
) -> None:
    monkeypatch.setenv("KRB5_KTNAME", "FILE:/none/default.keytab")
    with pytest.raises(ConfigError, match=reason) as raised:
        asyncio.run(mechanism(listener(jaas, sasl_kerberos_service_name="kafka")))
    assert "listener.name.sasl.gssapi.sasl.jaas.config" in str(raised.value)


def test_a_keytab_without_the_principal_is_refused(realm: Realm) -> None:
    with pytest.raises(ConfigError, match="cannot be used for other/localhost: No principal in keytab matches"):
        asyncio.run(mechanism(listener(server_jaas(realm, "other/localhost"))))


def test_wrong_rules_are_refused(realm: Realm) -> None:
    with pytest.raises(ConfigError, match="Invalid rule: RULE:x") as raised:
        asyncio.run(mechanism(listener(server_jaas(realm), sasl_kerberos_principal_to_local_rules="RULE:x")))
    assert "principal.to.local.rules" in str(raised.value)


def test_contradictions_of_a_client_are_refused(realm: Realm) -> None:
    with pytest.raises(ConfigError, match="another principal"):
        create_login(client_settings({"principal": "a"}, sasl_kerberos_principal="b"))
    with pytest.raises(ConfigError, match="serviceName is x"):
        create_login(client_settings({"serviceName": "x"}, sasl_kerberos_service_name="kafka"))


# --- errors of tickets --------------------------------------------------------------------------------------------


def test_an_unknown_service_is_named(realm: Realm) -> None:
    async def test() -> None:
        login = create_login(alice(realm))
        with pytest.raises(SaslAuthenticationFailedError, match="kafka@nowhere.*not found in Kerberos database"):
            await login.exchange("nowhere")
        await login.close()

    run(test)


def test_a_wrong_key_is_no_reason_to_retry(realm: Realm, tmp_path: Path) -> None:
    realm.add("bob")
    stale = tmp_path / "stale.keytab"
    shutil.copy(keytab(realm, "bob"), stale)
    realm.keytab("bob")

    async def test() -> None:
        login = create_login(client_settings({"keyTab": str(stale), "principal": f"bob@{REALM}"}))
        with pytest.raises(SaslAuthenticationFailedError, match="to get a ticket from the keytab .*stale.keytab"):
            await login.exchange("localhost")
        await login.close()

    run(test)


def test_no_tickets_are_no_reason_to_retry(realm: Realm, tmp_path: Path) -> None:
    async def test() -> None:
        login = create_login(client_settings({"useTicketCache": "true", "ticketCache": str(tmp_path / "none")}))
        with pytest.raises(SaslAuthenticationFailedError, match="ticket cache .*none: No credentials cache found"):
            await login.exchange("localhost")
        await login.close()

    run(test)


def test_a_missing_centre_is_a_reason_to_retry(
    realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        text = (realm.directory / "krb5.conf").read_text()
        moved = tmp_path / "krb5.conf"
        moved.write_text(text.replace(f"127.0.0.1:{realm.port}", f"127.0.0.1:{closed.getsockname()[1]}"))
        monkeypatch.setenv("KRB5_CONFIG", str(moved))

        async def test() -> None:
            login = create_login(alice(realm))
            with pytest.raises(KafkaConnectionError, match="Cannot contact any KDC"):
                await login.exchange("localhost")
            await login.close()

        run(test)


# --- renewal ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lifetime_s", "chance", "pause"),
    [
        (36_000, 0.0, 28_800),
        (36_000, 1.0, 30_600),
        (70, 0.0, 60),
        (50, 0.0, 40),
        (0, 0.0, 1),
    ],
)
def test_the_pause_before_a_renewal(lifetime_s: float, chance: float, pause: float) -> None:
    assert pause_before_renewal(lifetime_s, RenewalSettings(), chance) == pytest.approx(pause)


def test_a_renewal_never_comes_after_the_end() -> None:
    assert pause_before_renewal(1000, RenewalSettings(window_factor=1.5), 0.5) == 1000


class Sleeps:
    """Pauses that a test ends."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.woken = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await self.woken.wait()
        self.woken.clear()


async def pauses(sleeps: Sleeps, number: int) -> None:
    while len(sleeps.pauses) < number:
        await asyncio.sleep(0.002)


def test_tickets_of_a_keytab_are_renewed(realm: Realm) -> None:
    async def test() -> None:
        sleeps = Sleeps()
        options = KerberosOptions(f"alice@{REALM}", str(keytab(realm, "alice")), None, False, "kafka")
        tickets = Tickets(library.load_gssapi("x"), options, RenewalSettings(jitter=0.0), sleep=sleeps)
        first = await tickets.credentials()
        assert await tickets.credentials() is first
        await pauses(sleeps, 1)
        assert sleeps.pauses[0] == pytest.approx(28_800, abs=10)
        sleeps.woken.set()
        await pauses(sleeps, 2)
        second = await tickets.credentials()
        assert second is not first
        assert second.lifetime > 35_000
        await tickets.close()
        await tickets.close()

    run(test)


def test_a_failed_renewal_keeps_the_tickets_and_is_repeated(
    realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    own = tmp_path / "alice.keytab"
    shutil.copy(keytab(realm, "alice"), own)

    async def test() -> None:
        sleeps = Sleeps()
        options = KerberosOptions(f"alice@{REALM}", str(own), None, False, "kafka")
        tickets = Tickets(library.load_gssapi("x"), options, RenewalSettings(), sleep=sleeps)
        first = await tickets.credentials()
        monkeypatch.setattr(tickets, "_acquire", lambda: (_ for _ in ()).throw(OSError("no disk")))
        await pauses(sleeps, 1)
        sleeps.woken.set()
        await pauses(sleeps, 2)
        assert sleeps.pauses[1] == 10.0
        assert await tickets.credentials() is first
        monkeypatch.undo()
        sleeps.woken.set()
        await pauses(sleeps, 3)
        assert await tickets.credentials() is not first
        await tickets.close()

    run(test)
    assert "could not be renewed: no disk" in caplog.text


def test_a_ticket_cache_is_renewed_by_kinit(realm: Realm) -> None:
    realm.admin(f"modprinc -maxrenewlife 7d krbtgt/{REALM}")
    realm.admin("modprinc -maxrenewlife 7d alice")
    cache = realm.kinit(f"alice@{REALM}", keytab(realm, "alice"), "-r", "2d", "-l", "1h")

    def issued() -> str:
        return realm.run("klist", "-c", str(cache), "-f")

    async def test() -> None:
        sleeps = Sleeps()
        options = KerberosOptions(None, None, str(cache), True, "kafka")
        settings = RenewalSettings(kinit=str(shutil.which("kinit")), jitter=0.0)
        tickets = Tickets(library.load_gssapi("x"), options, settings, sleep=sleeps)
        await tickets.credentials()
        await pauses(sleeps, 1)
        assert sleeps.pauses[0] == pytest.approx(2880, abs=10)
        before = cache.read_bytes()
        sleeps.woken.set()
        await pauses(sleeps, 2)
        assert cache.read_bytes() != before
        assert sleeps.pauses[1] != 10.0
        await tickets.close()

    run(test)
    assert "renew until" in issued()


def test_a_kinit_that_fails_is_logged_with_its_reason(realm: Realm, caplog: pytest.LogCaptureFixture) -> None:
    cache = realm.kinit(f"carol@{REALM}", realm.add("carol", "-maxrenewlife 0"))

    async def test() -> None:
        sleeps = Sleeps()
        options = KerberosOptions(None, None, str(cache), True, "kafka")
        for kinit in (str(shutil.which("kinit")), "/none/kinit"):
            tickets = Tickets(library.load_gssapi("x"), options, RenewalSettings(kinit=kinit), sleep=sleeps)
            await tickets.credentials()
            await pauses(sleeps, len(sleeps.pauses) + 1)
            number = len(sleeps.pauses)
            sleeps.woken.set()
            await pauses(sleeps, number + 1)
            assert sleeps.pauses[-1] == 10.0
            assert await tickets.credentials()
            await tickets.close()

    run(test)
    assert "-R" in caplog.text
    assert "/none/kinit" in caplog.text


def test_a_ticket_cache_without_settings_is_left_to_its_owner(
    realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{realm.kinit(f'alice@{REALM}', keytab(realm, 'alice'))}")

    async def test() -> None:
        sleeps = Sleeps()
        login = create_login(client_settings())
        assert isinstance(login, GssapiLogin)
        await login.exchange("localhost")
        assert login._tickets._renewals is None
        await login.close()
        assert sleeps.pauses == []

    run(test)


# --- options ------------------------------------------------------------------------------------------------------


def test_options_of_the_login_module() -> None:
    given = {"keyTab": "FILE:/k", "principal": "*", "useTicketCache": "TRUE", "serviceName": "s"}
    assert kerberos_options(given.get, None) == KerberosOptions(None, "/k", None, True, "s")
    assert kerberos_options({}.get, None) == KerberosOptions(None, None, None, False, "kafka")
    assert kerberos_options({}.get, "svc").service == "svc"
