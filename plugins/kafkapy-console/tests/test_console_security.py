"""Security: headers, tokens of forms, host names, logins, roles, read-only consoles, the audit log."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from console_site import Person
from kafkapy_console.app import create_app
from kafkapy_console.errors import BadInputError, TooBusyError
from kafkapy_console.records.registry import address_part
from kafkapy_console.security import sessions
from kafkapy_console.security.headers import POLICY
from kafkapy_console.security.passwords import hashed, matches
from kafkapy_console.security.people import LOGIN_TRIES, MOST_STREAMS_OF_USER
from kafkapy_console.security.roles import access_of
from kafkapy_console.settings import Level, OidcSettings, RegistrySettings, RoleRule, Settings

from kafkapy import testing
from kafkapy.errors import ConfigError

USERS = {"ann": hashed("correct horse"), "bob": hashed("battery staple"), "eve": hashed("eavesdropper")}
ROLES = (
    RoleRule(Level.ADMIN, ("ann",)),
    RoleRule(Level.EDITOR, ("bob",), prefixes=("team-b.",)),
    RoleRule(Level.VIEWER, ("eve",), prefixes=("team-e.",)),
)
POSTS = sorted(
    route.path
    for route in create_app(Settings(kafka={"bootstrap.servers": "127.0.0.1:1"})).routes
    if "POST" in (getattr(route, "methods", None) or ())
)


def session_of(visitor: Person) -> str | None:
    return visitor.http.cookies.get(sessions.cookie_name(urlsplit(visitor.url).port))


def filled(path: str) -> str:
    return re.sub(r"\{[^}]+\}", "1", path)


def test_every_answer_has_the_headers(person: Person) -> None:
    for path in ("/", "/static/console.css", "/nowhere", "/live.json"):
        headers = person.http.get(path).headers
        assert headers["Content-Security-Policy"] == POLICY
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
    assert "unsafe" not in POLICY
    assert "http" not in POLICY
    assert person.http.get("/").headers["Cache-Control"] == "no-store"
    assert "max-age" in person.http.get("/static/console.css").headers["Cache-Control"]


def test_the_cookie_of_a_session_is_not_for_scripts_or_other_sites(site: str) -> None:
    visitor = Person(site)
    cookie = visitor.http.get("/").headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Set-Cookie" not in visitor.http.get("/").headers
    visitor.close()


def test_there_are_actions() -> None:
    assert len(POSTS) > 30


@pytest.mark.parametrize("path", POSTS)
def test_an_action_without_a_token_is_refused(person: Person, path: str) -> None:
    person.get("/")
    response = person.http.post(filled(path), data={"name": "1"})
    assert response.status_code == 403
    assert "came from another site" in response.text


@pytest.mark.parametrize("path", POSTS)
def test_a_read_only_console_refuses_every_action(read_only: Person, path: str) -> None:
    if path in ("/login", "/logout"):
        return
    response = read_only.http.post(filled(path), data={"name": "1"})
    assert response.status_code == 403
    assert "This console is read-only" in response.text


@pytest.fixture(scope="module")
def read_only(broker: testing.Broker) -> Iterator[Person]:
    from console_site import serving

    with serving(Settings(kafka={"bootstrap.servers": broker.bootstrap_servers}, read_only=True)) as url:
        visitor = Person(url)
        yield visitor
        visitor.close()


def test_a_read_only_console_shows_no_button_for_changes(read_only: Person, topic: Callable[..., str]) -> None:
    name = topic()
    for path in ("/topics", f"/topics/{name}", f"/topics/{name}/configs", "/acls", "/users", "/quotas", "/tokens"):
        page = read_only.get(path)
        assert 'method="post"' not in page, path
        assert "read-only" in page


def test_a_token_of_another_session_is_refused(person: Person, site: str) -> None:
    other = Person(site)
    token = other.token("/create-topic")
    person.get("/")
    assert person.http.post("/create-topic", data={"_csrf": token, "name": "x"}).status_code == 403
    other.close()


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=["origin", "null", "cross-site", "same-site"],
)
def test_a_form_of_another_site_is_refused_with_a_right_token(person: Person, headers: dict[str, str]) -> None:
    token = person.token("/create-topic")
    response = person.http.post("/create-topic", data={"_csrf": token, "name": "x"}, headers=headers)
    assert response.status_code == 403


@pytest.mark.parametrize("where", ["cross-site", "same-site"])
@pytest.mark.parametrize("mode", ["cors", "no-cors", "same-origin"])
def test_another_site_makes_the_console_do_no_work(person: Person, where: str, mode: str) -> None:
    headers = {"Sec-Fetch-Site": where, "Sec-Fetch-Mode": mode}
    for path in ("/", "/topics/t/search", "/topics/t/tail", "/topics/t/download"):
        assert "came from another site" in person.http.get(path, headers=headers).text
    # A link may.
    assert person.http.get("/", headers={**headers, "Sec-Fetch-Mode": "navigate"}).status_code == 200


def test_another_host_name_is_refused(person: Person) -> None:
    response = person.http.get("/", headers={"Host": "rebound.example"})
    assert response.status_code == 421
    assert person.http.get("/", headers={"Host": "localhost:1234"}).status_code == 200


def test_a_form_that_is_too_large_is_refused(person: Person) -> None:
    response = person.http.post("/create-topic", data={"name": "x" * (9 << 20)})
    assert response.status_code == 400
    assert "larger than 8 MiB" in response.text


# --- sessions -----------------------------------------------------------------------------------------------------


def test_consoles_of_one_host_have_cookies_of_their_own(console: Callable[..., Person]) -> None:
    one, two = (console(login="users", users=USERS, roles=ROLES) for _ in range(2))
    one.log_in("ann", "correct horse")
    two.http.cookies = one.http.cookies  # one browser
    two.log_in("bob", "battery staple")
    assert "ann" in one.get("/topics")
    assert "bob" in two.get("/topics")


def test_a_session_ends_though_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(sessions.time, "monotonic", lambda: now)
    kept = sessions.Sessions(b"secret", 100)
    session = kept.begin("ann", access_of(ROLES, "ann", ()), logged_in=True)
    session.begun = now
    while now < 1400:
        now += 50
        assert kept.find(session.id) is session
    now += 50
    assert kept.find(session.id) is None


def test_one_user_leaves_streams_to_others() -> None:
    made = create_app(
        Settings(kafka={"bootstrap.servers": "127.0.0.1:1"}, login="users", users=USERS, roles=ROLES)
    ).state.place.people
    ann, bob = (made.sessions.begin(name, access_of(ROLES, name, ()), logged_in=True) for name in ("ann", "bob"))
    with ExitStack() as stack:
        for _ in range(MOST_STREAMS_OF_USER):
            stack.enter_context(made.stream(ann))
        with pytest.raises(TooBusyError, match="of yours"):
            stack.enter_context(made.stream(ann))
        stack.enter_context(made.stream(bob))
    with made.stream(ann):
        pass


# --- logins -------------------------------------------------------------------------------------------------------


def test_passwords_match_their_hashes_only() -> None:
    stored = hashed("secret")
    assert stored != hashed("secret")
    assert matches("secret", stored)
    for wrong in ("Secret", "", "secret "):
        assert not matches(wrong, stored)
    for text in ("", "plain", "scrypt$1$8$1$$", "scrypt$99$8$1$AAAA$AAAA", "scrypt$15$8$1$###$###"):
        assert not matches("secret", text)


def test_pages_need_a_login(console: Callable[..., Person]) -> None:
    visitor = console(login="users", users=USERS, roles=ROLES)
    response = visitor.http.get("/topics?q=a b")
    assert (response.status_code, response.headers["location"]) == (303, "/login?next=%2Ftopics%3Fq%3Da%2520b")
    assert "eve" not in visitor.get("/login")
    refused = visitor.log_in("ann", "wrong", 403)
    assert "is not known" in refused.text
    assert "is not known" in visitor.log_in("nobody", "wrong", 403).text
    before = session_of(visitor)
    assert visitor.log_in("ann", "correct horse").headers["location"] == "/"
    assert session_of(visitor) != before, "a login needs a new session"
    assert "ann" in visitor.get("/topics")
    visitor.send("/logout", page="/")
    assert visitor.http.get("/topics").status_code == 303


def test_a_login_goes_on_to_paths_of_the_console_only(console: Callable[..., Person]) -> None:
    visitor = console(login="users", users=USERS, roles=ROLES)
    for target in ("https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)"):
        fields = {"user": "ann", "password": "correct horse", "next": target}
        assert visitor.send("/login", fields, page="/login").headers["location"] == "/"
        visitor.send("/logout", page="/")


def test_wrong_passwords_in_a_row_have_to_wait(console: Callable[..., Person]) -> None:
    visitor = console(login="users", users=USERS, roles=ROLES)
    for _ in range(5):
        visitor.log_in("ann", "wrong", 403)
    assert "Too many failed logins" in visitor.log_in("ann", "correct horse", 403).text
    assert visitor.log_in("bob", "battery staple").status_code == 303


def test_roles_by_prefix(console: Callable[..., Person], topic: Callable[..., str]) -> None:
    mine, other = topic(name="team-b.orders"), topic(name="team-e.orders")
    visitor = console(login="users", users=USERS, roles=ROLES)
    visitor.log_in("bob", "battery staple")
    page = visitor.get("/topics")
    assert mine in page
    assert other not in page
    assert "Produce" in visitor.get(f"/topics/{mine}")
    assert "needs the role viewer" in visitor.get(f"/topics/{other}", 403)
    assert "needs the role" in visitor.get("/acls", 403)
    assert "needs the role admin" in visitor.get(f"/topics/{mine}/delete", 403)
    visitor.send("/create-topic", {"name": "team-b.new", "partitions": "1"}, page="/create-topic")
    refused = visitor.send("/create-topic", {"name": "team-x.new"}, page="/create-topic", status=403)
    assert "needs the role editor for team-x.new" in refused.text

    visitor = console(login="users", users=USERS, roles=ROLES)
    visitor.log_in("eve", "eavesdropper")
    assert 'method="post" action="/topics' not in visitor.get(f"/topics/{other}")
    refused = visitor.http.post(
        f"/topics/{other}/produce", data={"_csrf": visitor.token("/"), "value": "x", "value_encoding": "text"}
    )
    assert refused.status_code == 403


def test_jobs_with_topics_of_others_are_not_shown(console: Callable[..., Person], topic: Callable[..., str]) -> None:
    name = topic(name="team-e.copied")
    visitor = console(login="users", users=USERS, roles=ROLES)
    visitor.log_in("ann", "correct horse")
    visitor.send(f"/topics/{name}/copy", {"name": "team-e.copy", "records": "1"}, page=f"/topics/{name}/copy")
    assert "team-e.copy" in visitor.get("/jobs")
    visitor.send("/logout", page="/")
    visitor.log_in("bob", "battery staple")
    assert "team-e" not in visitor.get("/jobs")
    assert "There is no job 1" in visitor.send("/jobs/1/stop", page="/create-topic", status=404).text
    visitor.send("/logout", page="/")
    visitor.log_in("eve", "eavesdropper")
    assert "team-e.copy" in visitor.get("/jobs")


def test_no_role_sees_nothing() -> None:
    access = access_of(ROLES, "mallory", ())
    assert not access.may(Level.VIEWER)
    assert not access.may(Level.VIEWER, "team-b.orders")
    assert access.visible(["team-b.orders"]) == []


def test_a_group_of_the_identity_provider_gives_a_role() -> None:
    rules = [RoleRule(Level.EDITOR, groups=("ops",)), RoleRule(Level.VIEWER, users=("*",))]
    assert access_of(rules, "ann", ["ops"]).may(Level.EDITOR, "x")
    assert not access_of(rules, "ann", ["dev"]).may(Level.EDITOR, "x")
    assert access_of(rules, "ann", []).may(Level.VIEWER)


def test_a_kafka_user_logs_in_with_its_own_rights(console: Callable[..., Person]) -> None:
    with testing.Broker(
        security="SASL_PLAINTEXT",
        users={"admin": "admin-password", "ann": "ann-password"},
        authorizer_class_name="acl",
        super_users="User:admin;User:ANONYMOUS",
    ) as secured:
        secured.create_topic("not-for-ann")
        keys = {
            name: value
            for name, value in secured.client_config("admin").items()
            if name not in ("sasl.username", "sasl.password", "sasl.jaas.config")
        }
        visitor = console(login="sasl", kafka=keys)
        assert "is not known" in visitor.log_in("ann", "wrong", 403).text
        visitor.log_in("admin", "admin-password")
        assert "not-for-ann" in visitor.get("/topics")
        visitor.send("/logout", page="/")
        visitor.log_in("ann", "ann-password")
        assert "not-for-ann" not in visitor.get("/topics")
        visitor.get("/topics/not-for-ann", 403)


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"kafka": {"bootstrap.servers": "a:9092"}}, "kafka.security.protocol"),
        ({"kafka": {"bootstrap.servers": "a:9092", "security_protocol": "SSL"}}, "kafka.security.protocol"),
        (
            {
                "kafka": {"bootstrap.servers": "a:9092", "security.protocol": "SASL_SSL"},
                "registry": RegistrySettings("http://a"),
            },
            "role",
        ),
    ],
    ids=["no protocol", "no passwords", "a registry without roles"],
)
def test_a_login_by_kafka_users_needs_brokers_that_check_them(given: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Settings(login="sasl", **given)
    assert refused.value.key == key


@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_that_is_a_step_of_an_address_is_refused(name: str) -> None:
    with pytest.raises(BadInputError):
        address_part(name)
    assert address_part("a/b") == "a%2Fb"


def test_tries_to_log_in_at_once_are_counted(console: Callable[..., Person]) -> None:
    visitor = console(login="users", users={"ann": hashed("right")})
    token = visitor.token("/login")

    def attempt(_: int) -> str:
        return visitor.http.post("/login", data={"user": "ann", "password": "wrong", "_csrf": token}).text

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(attempt, range(16)))
    assert sum("Too many failed logins" in each for each in answers) >= 16 - LOGIN_TRIES


def test_a_login_by_an_identity_provider(console: Callable[..., Person], tmp_path: Path) -> None:
    from identity_provider import identity_provider

    with identity_provider(tmp_path) as provider:
        issuer = f"https://127.0.0.1:{provider.port}"
        document = {
            "issuer": issuer,
            "authorization_endpoint": f"{issuer}/authorize",
            "token_endpoint": f"{issuer}/token",
            "jwks_uri": f"{issuer}/jwks",
        }
        settings = OidcSettings(issuer, "console", "client-secret", ca_file=str(provider.ca_file))
        roles = (RoleRule(Level.ADMIN, groups=("ops",)),)
        visitor = console(login="oidc", oidc=settings, roles=roles)
        provider.answers.append((200, {}, json.dumps(document).encode()))
        begun = visitor.http.get("/login/oidc")
        query = parse_qs(urlsplit(begun.headers["location"]).query)
        assert query["code_challenge_method"] == ["S256"]
        state, nonce = query["state"][0], query["nonce"][0]

        def come_back(nonce: str, state: str, **claims: object) -> int:
            token = provider.keys[-1].sign(
                {
                    "iss": issuer,
                    "aud": "console",
                    "nonce": nonce,
                    "preferred_username": "ann",
                    "groups": ["ops"],
                    **claims,
                }
            )
            provider.answers.append((200, {}, json.dumps({"id_token": token}).encode()))
            status = visitor.http.get("/login/oidc/callback", params={"code": "c", "state": state}).status_code
            provider.answers.clear()
            return status

        def again() -> tuple[str, str]:
            found = parse_qs(urlsplit(visitor.http.get("/login/oidc").headers["location"]).query)
            return found["nonce"][0], found["state"][0]

        assert come_back(nonce, "another state") == 403
        assert come_back("another nonce", state) == 403
        assert come_back(nonce, state) == 403, "a state is good for one try"
        nonce, state = again()
        assert come_back(nonce, state, aud="another client") == 403
        nonce, state = again()
        assert come_back(nonce, state, iss="https://evil.example") == 403
        nonce, state = again()
        assert come_back(nonce, state, exp=1) == 403
        nonce, state = again()
        assert come_back(nonce, state, preferred_username=None, email="root@ours.example") == 403
        assert visitor.http.get("/topics").status_code == 303
        nonce, state = again()
        assert come_back(nonce, state) == 303
        assert "ann" in visitor.get("/topics")


# --- audit --------------------------------------------------------------------------------------------------------


def test_the_audit_log_has_actions_and_no_contents(
    console: Callable[..., Person], topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic()
    file = tmp_path / "audit.jsonl"
    visitor = console(audit_file=file)
    visitor.send(
        f"/topics/{name}/produce",
        {"value": "the-secret-value", "key": "the-secret-key", "headers": "trace: the-secret-header"},
        page=f"/topics/{name}/produce",
    )
    visitor.get(f"/topics/{name}/records")
    visitor.events(f"/topics/{name}/search?filter=value+%3D%3D+%22the-secret-value%22")
    text = file.read_text(encoding="utf-8")
    actions = [json.loads(line)["action"] for line in text.splitlines()]
    assert {"produce", "read records", "search records"} <= set(actions)
    assert "the-secret" not in text
    page = visitor.get("/audit")
    assert "search records" in page
    assert "the-secret" not in page
