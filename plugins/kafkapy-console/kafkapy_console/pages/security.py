"""Access control lists, SCRAM users, quotas, delegation tokens, and what a user may do."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from kafkapy.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafkapy.errors import KafkaError
from kafkapy_console.console import number
from kafkapy_console.errors import BadInputError
from kafkapy_console.pages.topics import pages_of
from kafkapy_console.services.permissions import decided, rights
from kafkapy_console.services.topics import described
from kafkapy_console.settings import Level
from kafkapy_console.web import Form, Visit, action, page

__all__ = ["ROUTES"]

TYPES = ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")
OPERATIONS = (
    "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "ALL",
)  # fmt: skip
PATTERNS = ("LITERAL", "PREFIXED")
PERMISSIONS = ("ALLOW", "DENY")
MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256")
QUOTA_KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
IP_KEYS = ("connection_creation_rate",)
EVERY = ACLFilter(
    None,
    None,
    ACLOperation.ANY,
    ACLPermissionType.ANY,
    ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
)


# --- ACLs ---------------------------------------------------------------------------------------------------------


async def every_acl(visit: Visit) -> list[ACL]:
    """All rules of the cluster."""
    visit.require(Level.VIEWER)
    found, _ = await (await visit.clients.admin()).describe_acls(EVERY)
    return sorted(found, key=_order)


def _order(acl: ACL) -> tuple[str, str, int]:
    return acl.principal or "", acl.resource_pattern.resource_name or "", acl.operation


async def acls(visit: Visit) -> Response:
    """The rules, by principal or resource."""
    search, kind = visit.query.text("q").lower(), visit.query.text("kind")
    note, found = "", []
    try:
        found = await every_acl(visit)
    except KafkaError as error:
        note = str(error)
    shown = [
        each
        for each in found
        if (not kind or each.resource_pattern.resource_type.name == kind)
        and (search in (each.principal or "").lower() or search in (each.resource_pattern.resource_name or "").lower())
    ]
    bounds = pages_of(visit, len(shown), 200)
    return visit.render(
        "acls.html",
        rows=shown[bounds["start"] : bounds["end"]],
        note=note,
        q=visit.query.text("q"),
        kind=kind,
        types=TYPES,
        operations=OPERATIONS,
        patterns=PATTERNS,
        permissions=PERMISSIONS,
        **bounds,
    )


def _acl(form: Form) -> ACL:
    kind = ResourceType[form.choice("type", TYPES)]
    name = "kafka-cluster" if kind is ResourceType.CLUSTER else form.needed("resource")
    principal = form.needed("principal")
    if ":" not in principal:
        principal = f"User:{principal}"
    return ACL(
        principal,
        form.text("host") or "*",
        ACLOperation[form.choice("operation", OPERATIONS)],
        ACLPermissionType[form.choice("permission", PERMISSIONS, "ALLOW")],
        ResourcePattern(kind, name, ACLResourcePatternType[form.choice("pattern", PATTERNS, "LITERAL")]),
    )


def sentence_of(acl: ACL) -> str:
    """A rule in words."""
    pattern = acl.resource_pattern
    prefix = " beginning with" if pattern.pattern_type is ACLResourcePatternType.PREFIXED else ""
    return (
        f"{acl.permission_type.name} {acl.operation.name} on {pattern.resource_type.name}{prefix} "
        f"{pattern.resource_name} to {acl.principal} from {acl.host}"
    )


async def add_acl(visit: Visit, form: Form) -> Response:
    """Add one rule."""
    visit.require(Level.ADMIN)
    acl = _acl(form)
    for error in await (await visit.clients.admin()).add_acls([acl]):
        if error is not None:
            raise error
    visit.audit("add ACL", sentence_of(acl))
    visit.flash(f"Rule added: {sentence_of(acl)}.")
    return visit.redirect("/acls")


async def delete_acl_form(visit: Visit) -> Response:
    """The rules that a deletion removes, and who loses by it."""
    visit.require(Level.ADMIN)
    acl = _acl(visit.query)
    found = await every_acl(visit)
    left = [each for each in found if each.principal == acl.principal and each != acl]
    return visit.render("acl_delete.html", acl=acl, text=sentence_of(acl), exists=acl in found, left=len(left))


async def delete_acl(visit: Visit, form: Form) -> Response:
    """Delete one rule."""
    visit.require(Level.ADMIN)
    acl = _acl(form)
    pattern = acl.resource_pattern
    exact = ACLFilter(
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
        ResourcePatternFilter(pattern.resource_type, pattern.resource_name, pattern.pattern_type),
    )
    ((_, deleted, error),) = await (await visit.clients.admin()).delete_acls([exact])
    if not deleted:
        raise BadInputError(f"No rule was deleted: {error.__name__}.")
    visit.audit("delete ACL", sentence_of(acl))
    visit.flash(f"Rule deleted: {sentence_of(acl)}.")
    return visit.redirect("/acls")


async def rights_page(visit: Visit) -> Response:
    """What may this user do? All rules of a principal, and the answer for one request."""
    visit.require(Level.VIEWER)
    principal = visit.query.text("principal")
    if principal and ":" not in principal:
        principal = f"User:{principal}"
    found: list[ACL] = []
    note = ""
    try:
        found = await every_acl(visit)
    except KafkaError as error:
        note = str(error)
    super_users, open_house = await _authorizer(visit)
    decision = None
    if principal and visit.query.text("name"):
        decision = decided(
            found,
            principal,
            visit.query.text("host") or "*",
            ACLOperation[visit.query.choice("operation", OPERATIONS[:-1], "READ")],
            ResourceType[visit.query.choice("type", TYPES, "TOPIC")],
            visit.query.text("name"),
            super_users=super_users,
            allow_without_acl=open_house,
        )
    return visit.render(
        "rights.html",
        principal=principal,
        principals=sorted({each.principal or "" for each in found}),
        rows=rights(found, principal) if principal else [],
        decision=decision,
        rule=sentence_of(decision.rule) if decision is not None and decision.rule is not None else "",
        is_super=principal in super_users,
        note=note,
        types=TYPES,
        operations=OPERATIONS[:-1],
        form=visit.query,
    )


async def _authorizer(visit: Visit) -> tuple[list[str], bool]:
    """super.users and allow.everyone.if.no.acl.found of a broker, where the console may read them."""
    try:
        cluster = await (await visit.clients.admin()).describe_cluster()
        configs = await described(visit.clients, "broker", str(cluster["brokers"][0]["broker_id"]))
    except (KafkaError, IndexError):
        return [], False
    users = str(configs.get("super.users", {}).get("value") or "")
    open_house = str(configs.get("allow.everyone.if.no.acl.found", {}).get("value") or "").lower() == "true"
    return [each.strip() for each in users.split(";") if each.strip()], open_house


# --- SCRAM users --------------------------------------------------------------------------------------------------


async def users(visit: Visit) -> Response:
    """Users with SCRAM credentials."""
    visit.require(Level.VIEWER)
    note = ""
    found: dict[str, Any] = {}
    try:
        found = await (await visit.clients.admin()).describe_user_scram_credentials()
    except KafkaError as error:
        note = str(error)
    search = visit.query.text("q")
    rows = [(name, each) for name, each in sorted(found.items()) if search.lower() in name.lower()]
    bounds = pages_of(visit, len(rows), 200)
    return visit.render(
        "users.html",
        rows=rows[bounds["start"] : bounds["end"]],
        q=search,
        note=note,
        mechanisms=MECHANISMS,
        **bounds,
    )


async def save_user(visit: Visit, form: Form) -> Response:
    """Set the password of a user for one mechanism. The password leaves the console as a salted hash."""
    visit.require(Level.ADMIN)
    name, mechanism = form.needed("user"), form.choice("mechanism", MECHANISMS)
    password = form.raw("password")
    if len(password) < 8:
        raise BadInputError("A password needs at least 8 characters.")
    iterations = number(form.text("iterations"), "Iterations", 4096, 16384, 8192)
    change = UserScramCredentialUpsertion(name, mechanism, password, iterations)
    await _alter_users(visit, change, name)
    visit.audit("set SCRAM credential", name, mechanism=mechanism)
    visit.flash(f"User {name} has a {mechanism} credential.")
    return visit.redirect("/users")


async def delete_user(visit: Visit, form: Form) -> Response:
    """Delete a credential of a user."""
    visit.require(Level.ADMIN)
    name, mechanism = form.needed("user"), form.choice("mechanism", MECHANISMS)
    if form.text("confirmed") != name:
        return visit.render("user_delete.html", user=name, mechanism=mechanism)
    await _alter_users(visit, UserScramCredentialDeletion(name, mechanism), name)
    visit.audit("delete SCRAM credential", name, mechanism=mechanism)
    visit.flash(f"The {mechanism} credential of {name} is deleted.")
    return visit.redirect("/users")


async def _alter_users(
    visit: Visit, change: UserScramCredentialDeletion | UserScramCredentialUpsertion, name: str
) -> None:
    outcome = await (await visit.clients.admin()).alter_user_scram_credentials([change])
    if outcome.get(name):
        raise BadInputError(f"The broker refuses: {outcome[name]}")


# --- quotas -------------------------------------------------------------------------------------------------------


async def quotas(visit: Visit) -> Response:
    """Quotas of users, client ids and addresses."""
    visit.require(Level.VIEWER)
    note, found = "", []
    try:
        found = await (await visit.clients.admin()).describe_client_quotas()
    except KafkaError as error:
        note = str(error)
    rows = sorted(found, key=lambda each: sorted((kind, name or "") for kind, name in each.entity.items()))
    bounds = pages_of(visit, len(rows), 200)
    return visit.render(
        "quotas.html", rows=rows[bounds["start"] : bounds["end"]], note=note, keys=(*QUOTA_KEYS, *IP_KEYS), **bounds
    )


async def save_quota(visit: Visit, form: Form) -> Response:
    """Set or remove one quota. `*` is the default of users, client ids or addresses."""
    visit.require(Level.ADMIN)
    entity = {
        kind: None if text == "*" else text
        for kind, text in (("user", form.text("user")), ("client-id", form.text("client")), ("ip", form.text("ip")))
        if text
    }
    if not entity:
        raise BadInputError("Name a user, a client id or an address; * is the default.")
    if "ip" in entity and len(entity) > 1:
        raise BadInputError("A quota of an address has neither user nor client id.")
    key = form.choice("quota", (*QUOTA_KEYS, *IP_KEYS))
    text = form.text("value")
    value: float | None = None
    if text and form.text("remove") != "yes":
        try:
            value = float(text)
        except ValueError:
            raise BadInputError(f"{text[:40]!r} is no number.") from None
        if not 0 < value < 2**63:
            raise BadInputError("A quota must be greater than 0.")
    await (await visit.clients.admin()).alter_client_quotas([(entity, {key: value})])
    about = ", ".join(f"{kind} {name or 'default'}" for kind, name in entity.items())
    visit.audit("set quota" if value is not None else "remove quota", about, key=key, value=value)
    visit.flash(f"{key} of {about} is {'removed' if value is None else f'{value:g}'}.")
    return visit.redirect("/quotas")


# --- delegation tokens --------------------------------------------------------------------------------------------


async def tokens(visit: Visit) -> Response:
    """Delegation tokens; their secrets are not shown."""
    visit.require(Level.VIEWER)
    note, found = "", []
    try:
        found = await (await visit.clients.admin()).describe_delegation_token()
    except KafkaError as error:
        note = str(error)
    return visit.render("tokens.html", rows=found, note=note)


async def create_token(visit: Visit, form: Form) -> Response:
    """A new token of the console's principal; its secret is shown once, here."""
    visit.require(Level.ADMIN)
    hours = number(form.text("hours"), "Hours", 1, 24 * 365, 24)
    renewers = [each if ":" in each else f"User:{each}" for each in form.text("renewers").replace(",", " ").split()]
    admin = await visit.clients.admin()
    token = await admin.create_delegation_token(renewers=renewers, max_lifetime_ms=hours * 3_600_000)
    visit.audit("create delegation token", token.token_id, hours=hours)
    return visit.render("token_created.html", token=token)


async def expire_token(visit: Visit, form: Form) -> Response:
    """End a token now. The page never had its secret, so it is looked up by its id."""
    visit.require(Level.ADMIN)
    token_id = form.needed("token")
    admin = await visit.clients.admin()
    found = [each for each in await admin.describe_delegation_token() if each.token_id == token_id]
    if not found:
        raise BadInputError("There is no such token.")
    await admin.expire_delegation_token(found[0].hmac, -1)
    visit.audit("expire delegation token", token_id)
    visit.flash(f"Token {token_id} is expired.")
    return visit.redirect("/tokens")


ROUTES = [
    page("/acls", acls),
    action("/acls", add_acl, Level.ADMIN, form_page=acls),
    page("/acls/delete", delete_acl_form, Level.ADMIN),
    action("/acls/delete", delete_acl, Level.ADMIN),
    page("/rights", rights_page),
    page("/users", users),
    action("/users", save_user, Level.ADMIN, form_page=users),
    action("/users/delete", delete_user, Level.ADMIN),
    page("/quotas", quotas),
    action("/quotas", save_quota, Level.ADMIN, form_page=quotas),
    page("/tokens", tokens),
    action("/tokens", create_token, Level.ADMIN, form_page=tokens),
    action("/tokens/expire", expire_token, Level.ADMIN),
]
