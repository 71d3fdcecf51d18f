"""Access in Chromium: ACLs, users, quotas, tokens, decisions, logins, roles, the audit log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from console_broker import all_of
from console_browser import OpenTab, Tab
from console_site import Person, serving
from kafkapy_console.security.passwords import hashed
from kafkapy_console.settings import Level, OidcSettings, RoleRule, Settings

from kafkapy import KafkaConsumer, KafkaProducer, TopicPartition, testing
from kafkapy.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from kafkapy.errors import TopicAuthorizationFailedError

Console = Callable[..., Person]
MakeTopic = Callable[..., str]
EVERY = ACLFilter(
    None, None, ACLOperation.ANY, ACLPermissionType.ANY,
    ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
)  # fmt: skip


def readable(prefix: str, who: str = "User:ann") -> ACL:
    """A rule that lets a user read topics that begin with a prefix."""
    pattern = ResourcePattern(ResourceType.TOPIC, prefix, ACLResourcePatternType.PREFIXED)
    return ACL(who, "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)


@pytest.fixture(scope="module")
def keeper(secured: testing.Broker) -> Iterator[KafkaAdminClient]:
    """A client of the broker with ACLs."""
    with KafkaAdminClient(bootstrap_servers=secured.bootstrap_servers) as started:
        yield started


@pytest.fixture
def guarded(secured: testing.Broker, console: Console, open_tab: OpenTab) -> Tab:
    """A tab at a console of the broker with ACLs."""
    return open_tab(console(kafka={"bootstrap.servers": secured.bootstrap_servers}).url)


def test_a_rule_is_added_and_deleted_by_clicks(guarded: Tab, keeper: KafkaAdminClient) -> None:
    tab = guarded
    tab.open("/acls")
    tab.fill("Principal", "ann")
    tab.pick("Resource type", "TOPIC")
    tab.fill("Name or prefix", " ")
    tab.click("Add")
    tab.told("Resource is needed.")
    tab.forgive()
    assert tab.field("Principal").input_value() == "ann"
    tab.fill("Name or prefix", "team.")
    tab.pick("Pattern", "PREFIXED")
    tab.click("Add")
    tab.told("Rule added: ALLOW READ on TOPIC beginning with team. to User:ann from *.")
    assert [cells[:4] for cells in tab.table("Rules")] == [["User:ann", "allow READ", "TOPIC team.…", "*"]]
    assert keeper.describe_acls(EVERY)[0] == [readable("team.")]
    tab.click("Delete", "link", "main table")
    tab.sees("User:ann has 0 other rules. Clients that need this rule get authorization errors")
    tab.click("Delete the rule")
    tab.told("Rule deleted")
    tab.sees("No rule is here.")
    assert keeper.describe_acls(EVERY)[0] == []


def test_a_scram_user_is_added_and_deleted_by_clicks(guarded: Tab, keeper: KafkaAdminClient) -> None:
    tab = guarded
    tab.open("/users")
    tab.fill("User", "carl")
    tab.pick("Mechanism", "SCRAM-SHA-256")
    tab.fill("Password", "short")
    tab.click("Set")
    # The browser itself refuses it.
    assert tab.page.locator("input[type=password]:invalid").count() == 1
    tab.fill("Password", "long enough")
    tab.click("Set")
    tab.told("carl")
    assert tab.table("Users")[0][1] == "SCRAM-SHA-256 (8,192 iterations)"
    assert "long enough" not in tab.page.content()
    (info,) = keeper.describe_user_scram_credentials(["carl"])["carl"]["credential_infos"]
    assert (info["mechanism"].name, info["iterations"]) == ("SCRAM_SHA_256", 8192)
    tab.click("Delete SCRAM-SHA-256 of carl")
    tab.sees("New connections of carl with SCRAM-SHA-256 are refused.")
    tab.click("Delete the credential")
    tab.told("carl")
    tab.sees("No user has a SCRAM credential.")
    assert keeper.describe_user_scram_credentials() == {}


def test_a_quota_is_set_and_removed_by_clicks(guarded: Tab, keeper: KafkaAdminClient) -> None:
    tab = guarded
    tab.open("/quotas")
    tab.fill("User", "ann")
    tab.fill("Client id", "*")
    tab.fill("Value", "-1")
    tab.click("Set")
    tab.page.wait_for_selector("#flashes .bad")
    tab.forgive()
    assert keeper.describe_client_quotas() == []
    assert [tab.field(label).input_value() for label in ("User", "Client id", "Value")] == ["ann", "*", "-1"]
    tab.fill("Value", "1000000")
    tab.click("Set")
    tab.sees("1.0 MB/s", "table")
    assert [cells[:3] for cells in tab.table("Quotas")] == [
        ["client-id default, user ann", "producer_byte_rate", "1.0 MB/s"]
    ]
    (quota,) = keeper.describe_client_quotas()
    assert (quota.entity, quota.values) == ({"user": "ann", "client-id": None}, {"producer_byte_rate": 1_000_000.0})
    tab.click("Remove")
    tab.sees("No quota is set.")
    assert keeper.describe_client_quotas() == []


# --- a broker with passwords --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def locked() -> Iterator[testing.Broker]:
    """A broker with users and ACLs: admin may do everything, ann may read topics team.*."""
    with testing.Broker(
        security="SASL_PLAINTEXT",
        users={"admin": "admin-password", "ann": "ann-password"},
        authorizer_class_name="acl",
        super_users="User:admin;User:ANONYMOUS",
        delegation_token_secret_key="key",
    ) as broker:
        for name in ("team.orders", "not-for-ann"):
            broker.create_topic(name, 1)
        with KafkaAdminClient(broker.client_config("admin")) as admin, KafkaProducer(broker.client_config()) as first:
            admin.create_acls([readable("team.")])
            first.send("team.orders", b"an order").get(timeout=60)
        yield broker


def test_a_token_is_created_and_expired_by_clicks(locked: testing.Broker, console: Console, open_tab: OpenTab) -> None:
    tab = open_tab(console(kafka=locked.client_config("admin")).url)
    tab.open("/tokens")
    tab.fill("Lives at most (hours)", "2")
    tab.fill("Renewers", "User:ann")
    tab.click("Create")
    tab.sees("The secret is shown once, now.")
    identifier, secret, owner, _ = tab.page.locator("dl.facts dd").all_inner_texts()
    assert owner == "User:admin"
    with KafkaAdminClient(locked.client_config("admin")) as admin:
        (token,) = admin.describe_delegation_token()
        assert (token.token_id, token.owner, token.renewers) == (identifier, "User:admin", ("User:ann",))
        assert token.max_timestamp_ms - token.issue_timestamp_ms == 2 * 3_600_000
        tab.click("To the tokens", "link")
        tab.row("Tokens", identifier).wait_for()
        assert secret not in tab.page.content()
        tab.click("Expire now")
        tab.sees("No token is visible.")
        assert admin.describe_delegation_token() == []


def test_decisions_on_the_page_are_those_of_the_broker(
    locked: testing.Broker, console: Console, open_tab: OpenTab
) -> None:
    tab = open_tab(console(kafka=locked.client_config("admin")).url)
    tab.open("/acls")
    tab.click("What may a user do?", "link")
    tab.fill("Principal", "User:ann")
    tab.click("Show")
    tab.sees("READ, DESCRIBE (implied)")
    assert tab.table("Rights") == [["TOPIC", "team.…", "READ, DESCRIBE (implied)", "–", "*"]]
    for operation, name, text in (
        ("READ", "team.orders", "Allowed."),
        ("WRITE", "team.orders", "Refused."),
        ("READ", "not-for-ann", "Refused."),
    ):
        tab.pick("May it", operation)
        tab.fill("named", name)
        with tab.page.expect_navigation():
            tab.click("Decide")
        assert tab.text("main div[role=status].banner").startswith(text), (operation, name)
    keys = locked.client_config("ann")
    partition = TopicPartition("team.orders", 0)
    with KafkaConsumer(
        **{name.replace(".", "_"): value for name, value in keys.items()}, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([partition])
        assert [next(consumer).value] == [b"an order"]
    with (
        KafkaProducer({**keys, "enable.idempotence": "false"}) as producer,
        pytest.raises(TopicAuthorizationFailedError),
    ):
        producer.send("team.orders", b"not allowed").get(timeout=60)


# --- logins -------------------------------------------------------------------------------------------------------


def log_in(tab: Tab, user: str, password: str, label: str = "User") -> None:
    tab.fill(label, user)
    tab.fill("Password", password)
    tab.click("Log in")


def log_out(tab: Tab) -> None:
    tab.page.locator("header details.menu summary").click()
    tab.click("Log out")
    tab.page.wait_for_url("**/login")


ROLES = (
    RoleRule(Level.ADMIN, ("ann",)),
    RoleRule(Level.EDITOR, ("bob",), prefixes=("team-b.",)),
    RoleRule(Level.VIEWER, ("eve",), prefixes=("team-b.",)),
)
USERS = {"ann": hashed("correct horse"), "bob": hashed("battery staple"), "eve": hashed("eavesdropper")}


def test_a_user_of_the_settings_logs_in_and_out(console: Console, open_tab: OpenTab, topic: MakeTopic) -> None:
    name = topic()
    tab = open_tab(console(login="users", users=USERS, roles=ROLES).url)
    tab.open(f"/topics/{name}")
    assert urlsplit(tab.page.url).path == "/login"
    log_in(tab, "ann", "wrong")
    tab.sees("is not known", "[role=alert]")
    tab.forgive()
    log_in(tab, "ann", "correct horse")
    # To the page that was asked for, before somebody typed a wrong password.
    tab.sees(f"{name}", "h1")
    assert "ann" in tab.text("header")
    log_out(tab)
    tab.open("/topics")
    assert urlsplit(tab.page.url).path == "/login"
    assert name not in tab.page.content()


def test_a_kafka_user_sees_its_own_topics(locked: testing.Broker, open_tab: OpenTab) -> None:
    shared = ("sasl.username", "sasl.password", "sasl.jaas.config")
    keys = {name: value for name, value in locked.client_config("admin").items() if name not in shared}
    with serving(Settings(login="sasl", kafka=keys)) as url:
        tab = open_tab(url)
        tab.open("/topics")
        log_in(tab, "ann", "wrong", "Kafka user")
        tab.sees("is not known", "[role=alert]")
        tab.forgive()
        log_in(tab, "ann", "ann-password", "Kafka user")
        tab.sees("Topics", "h1")
        assert [cells[0] for cells in tab.table("Topics")] == ["team.orders"]
        tab.click("team.orders", "link")
        tab.click("Records", "link", "nav.tabs")
        tab.row("Records", "an order").wait_for()
        tab.open("/topics/not-for-ann", status=403)
        log_out(tab)
        log_in(tab, "admin", "admin-password", "Kafka user")
        tab.sees("Cluster", "h1")
        tab.open("/topics")
        assert [cells[0] for cells in tab.table("Topics")] == ["not-for-ann", "team.orders"]
        tab.page.close()


def test_somebody_of_the_identity_provider_logs_in(console: Console, open_tab: OpenTab, tmp_path: Path) -> None:
    from identity_provider import identity_provider

    with identity_provider(tmp_path) as provider:
        issuer = f"https://127.0.0.1:{provider.port}"
        asked: dict[str, str] = {}

        def answer(path: str) -> None:
            """The documents of the provider, and its page, where ann says that it is she."""
            parts = urlsplit(path)
            if parts.path == "/.well-known/openid-configuration":
                paths = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "jwks"}
                document = {"issuer": issuer, **{name: f"{issuer}/{part}" for name, part in paths.items()}}
                provider.answers.append((200, {}, json.dumps(document).encode()))
            elif parts.path == "/authorize":
                asked.update({name: values[0] for name, values in parse_qs(parts.query).items()})
                back = f"{asked['redirect_uri']}?code=c&amp;state={quote(asked['state'])}"
                html = f'<link rel="icon" href="data:,"><a href="{back}">I am ann</a>'
                provider.answers.append((200, {"Content-Type": "text/html"}, html.encode()))
            elif parts.path == "/token":
                claims = {"iss": issuer, "aud": "console", "nonce": asked["nonce"], "groups": ["ops"]}
                token = provider.keys[-1].sign({**claims, "preferred_username": "ann"})
                provider.answers.append((200, {}, json.dumps({"id_token": token}).encode()))

        provider.answered = answer
        settings = OidcSettings(issuer, "console", "client-secret", ca_file=str(provider.ca_file))
        roles = (RoleRule(Level.ADMIN, groups=("ops",)),)
        tab = open_tab(console(login="oidc", oidc=settings, roles=roles).url, ignore_https_errors=True)
        tab.open("/topics")
        tab.click("Log in with the identity provider", "link")
        tab.click("I am ann", "link")
        tab.sees("Cluster", "h1")
        assert tab.page.url == f"{tab.url}/"
        assert tab.text("header summary") == "ann"
        tab.click("Audit log", "link", "nav")
        tab.sees("Audit log", "h1")
        log_out(tab)


# --- roles --------------------------------------------------------------------------------------------------------


def test_roles_show_names_and_buttons_by_prefix(
    console: Console, open_tab: OpenTab, topic: MakeTopic, broker: testing.Broker, admin: KafkaAdminClient
) -> None:
    mine, other = topic(name=f"team-b.{topic()}"), topic(name=f"team-c.{topic()}")
    tab = open_tab(console(login="users", users=USERS, roles=ROLES).url)
    tab.open("/topics")
    log_in(tab, "bob", "battery staple")
    tab.sees("Topics", "h1")
    tab.page.get_by_role("searchbox").fill("team-")
    tab.row("Topics", mine).wait_for()
    assert tab.row("Topics", other).count() == 0
    tab.click(mine, "link")
    tab.sees(f"{mine}", "h1")
    tab.page.locator("main details.menu summary").click()
    assert tab.page.get_by_role("link", name="Delete the topic").count() == 0
    tab.click("Produce", "link")
    tab.page.locator("textarea[name=value]").fill("of bob")
    tab.click("Produce")
    tab.told("The record is written")
    assert all_of(broker, mine) == [(None, b"of bob", [])]
    tab.open(f"/topics/{other}", status=403)
    tab.open(f"/topics/{mine}/delete", status=403)
    tab.open("/audit", status=403)
    tab.open("/create-topic")
    tab.fill("Name", "team-c.new")
    tab.click("Create")
    tab.sees("needs the role editor for team-c.new")
    tab.forgive()
    assert "team-c.new" not in admin.list_topics()
    log_out(tab)
    log_in(tab, "eve", "eavesdropper")
    tab.open(f"/topics/{mine}")
    assert tab.page.locator("main form[method=post]").count() == 0
    assert tab.page.get_by_role("link", name="Produce", exact=True).count() == 0


def test_the_audit_log_shows_actions_and_refusals(
    console: Console, open_tab: OpenTab, topic: MakeTopic, broker: testing.Broker, tmp_path: Path
) -> None:
    name = topic(name=f"team-b.{topic()}")
    file = tmp_path / "audit.jsonl"
    tab = open_tab(console(login="users", users=USERS, roles=ROLES, audit_file=file).url)
    tab.open(f"/topics/{name}/produce")
    log_in(tab, "ann", "correct horse")
    tab.page.locator("textarea[name=value]").fill("the-secret-value")
    tab.click("Produce")
    tab.told("The record is written")
    assert all_of(broker, name) == [(None, b"the-secret-value", [])]
    tab.click("Records", "link")
    tab.row("Records", "the-secret-value").wait_for()
    tab.open("/create-topic")
    tab.fill("Name", name)
    tab.click("Create")
    tab.page.wait_for_selector("#flashes .bad")
    tab.forgive()
    tab.click("Audit log", "link", "nav")
    tab.sees("Audit log", "h1")
    lines = {(cells[1], cells[2], cells[3]): cells[4] for cells in tab.table("Audit log")}
    assert lines["ann", "produce", name] == lines["ann", "read records", name] == "ok"
    assert lines["ann", "/create-topic", "/create-topic"].startswith("failed: TopicAlreadyExists")
    assert "the-secret" not in tab.page.content()
    assert "the-secret" not in file.read_text(encoding="utf-8")


def test_a_read_only_console_has_no_buttons(console: Console, open_tab: OpenTab, topic: MakeTopic) -> None:
    name = topic()
    tab = open_tab(console(read_only=True).url)
    for path in (f"/topics/{name}", f"/topics/{name}/configs", "/acls", "/users", "/quotas", "/tokens", "/topics"):
        tab.open(path)
        assert "read-only" in tab.text("header")
        assert tab.page.locator("main form[method=post], main a.primary, main details.menu").count() == 0, path
