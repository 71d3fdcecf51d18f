"""The clients' keys for TLS and SASL, under the names of four client libraries.

Keys are Kafka's. Keys and keywords of kafka-python, aiokafka and librdkafka (confluent-kafka) that Kafka lacks are keys
here as well; those that only spell a key differently are aliases. Sources: org.apache.kafka.common.config.SslConfigs
and SaslConfigs (4.4), librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

from typing import Final

from kafkapy.config.config_def import ConfigKey, Importance, between, one_of_ignoring_case
from kafkapy.config.tls_store_keys import store_keys
from kafkapy.types import ConfigType

__all__ = [
    "ALIASES", "CONTRADICTIONS", "EXACT_PASSWORDS", "KEYS", "SECURITY_PROTOCOLS", "WITHOUT_EFFECT", "WITH_PASSWORD",
]  # fmt: skip

STRING, INT, LONG, LIST, SHORT = (
    ConfigType.STRING, ConfigType.INT, ConfigType.LONG, ConfigType.LIST, ConfigType.SHORT,
)  # fmt: skip
BOOLEAN, CLASS, PASSWORD, DOUBLE = ConfigType.BOOLEAN, ConfigType.CLASS, ConfigType.PASSWORD, ConfigType.DOUBLE
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
K = ConfigKey

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

# fmt: off
_SSL: Final = (
    K("ssl.protocol", STRING, "TLSv1.3", None, MEDIUM, "Newest TLS version that the client offers."),
    K("ssl.enabled.protocols", LIST, ["TLSv1.2", "TLSv1.3"], None, MEDIUM, "TLS versions that the client accepts."),
    K("ssl.cipher.suites", LIST, [], None, LOW,
      "Cipher suites offered, by Java's or OpenSSL's names. Empty: OpenSSL's defaults."),
    K("ssl.endpoint.identification.algorithm", STRING, "https", None, LOW,
      "https: the broker's certificate must name the host that the client connects to. Empty or none: no check."),
    *store_keys("client", HIGH, trusted="Without any the client trusts the system's authorities."),
    # Of kafka-python and librdkafka.
    K("ssl.ca.location", STRING, None, None, HIGH,
      "PEM file, or directory of PEM files, with the trusted certificates (librdkafka's name)."),
    K("ssl.certificate.location", STRING, None, None, HIGH,
      "PEM file with the client's certificate chain, and its key unless ssl.key.location names it."),
    K("ssl.key.location", STRING, None, None, HIGH, "PEM file with the client's private key (librdkafka's name)."),
    K("ssl.crl.location", STRING, None, None, LOW,
      "PEM file with revocation lists; the client refuses a revoked certificate (librdkafka's name)."),
    K("ssl.check.hostname", BOOLEAN, True, None, LOW,
      "False: as an empty ssl.endpoint.identification.algorithm (kafka-python's ssl_check_hostname)."),
    K("enable.ssl.certificate.verification", BOOLEAN, True, None, LOW,
      "False: the client accepts every certificate, also that of an attacker (librdkafka's name)."),
    K("ssl.context", CLASS, None, None, MEDIUM,
      "An ssl.SSLContext of Python in place of all ssl.* keys (kafka-python's ssl_context). Its TLS runs in Python."),
)
_SASL: Final = (
    K("sasl.mechanism", STRING, "GSSAPI", None, MEDIUM,
      "SASL mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI."),
    K("sasl.jaas.config", PASSWORD, None, None, MEDIUM,
      "Login settings in JAAS form: the mechanism's login module with its options."),
    K("sasl.plain.username", STRING, None, None, MEDIUM,
      "User name for PLAIN and SCRAM, in place of sasl.jaas.config (kafka-python's sasl_plain_username)."),
    K("sasl.plain.password", PASSWORD, None, None, MEDIUM,
      "Password for PLAIN and SCRAM, in place of sasl.jaas.config (kafka-python's sasl_plain_password)."),
    K("sasl.client.callback.handler.class", CLASS, None, None, MEDIUM,
      "A callable that gives the mechanism's login options as a dictionary, before each authentication."),
    K("sasl.login.callback.handler.class", CLASS, None, None, MEDIUM,
      "A callable that gives OAUTHBEARER's token; as sasl.oauth.token.provider."),
    K("sasl.login.class", CLASS, None, None, MEDIUM, "No effect: a class of Java."),
    K("sasl.kerberos.service.name", STRING, None, None, MEDIUM,
      "Kerberos service name of the brokers. Not set: serviceName of sasl.jaas.config, or kafka."),
    K("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", None, LOW,
      "Path of kinit, which renews a ticket cache (useTicketCache=true)."),
    K("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, None, LOW,
      "Share of a ticket's life after which the client renews it."),
    K("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, None, LOW, "Random share added to the renewal time."),
    K("sasl.kerberos.min.time.before.relogin", LONG, 60000, None, LOW, "Least ms between two logins."),
    K("sasl.kerberos.principal", STRING, None, None, MEDIUM,
      "Kerberos principal of the client, in place of sasl.jaas.config (librdkafka's name)."),
    K("sasl.kerberos.keytab", STRING, None, None, MEDIUM,
      "Keytab of the client, in place of sasl.jaas.config (librdkafka's name)."),
    K("sasl.kerberos.name", CLASS, None, None, LOW,
      "The broker's name as gssapi.Name or text (kafka-python's sasl_kerberos_name)."),
    K("sasl.kerberos.domain.name", STRING, None, None, LOW,
      "Host name in the broker's Kerberos name (kafka-python's name). Not set: the host of the connection."),
    K("sasl.login.refresh.window.factor", DOUBLE, 0.8, between(0.5, 1.0), LOW,
      "Share of a token's life after which the client refreshes it."),
    K("sasl.login.refresh.window.jitter", DOUBLE, 0.05, between(0.0, 0.25), LOW,
      "Largest random share added to the refresh time."),
    K("sasl.login.refresh.min.period.seconds", SHORT, 60, between(0, 900), LOW,
      "Least seconds between two refreshes of a token."),
    K("sasl.login.refresh.buffer.seconds", SHORT, 300, between(0, 3600), LOW,
      "Seconds before its end when the client refreshes a token."),
    K("sasl.login.connect.timeout.ms", INT, None, None, LOW, "Connection timeout in ms towards a token endpoint."),
    K("sasl.login.read.timeout.ms", INT, None, None, LOW, "Read timeout in ms towards a token endpoint."),
    K("sasl.login.retry.backoff.max.ms", LONG, 10000, None, LOW,
      "Largest pause in ms between two attempts at a token endpoint."),
    K("sasl.login.retry.backoff.ms", LONG, 100, None, LOW,
      "First pause in ms between two attempts at a token endpoint."),
    K("sasl.oauth.token.provider", CLASS, None, None, MEDIUM,
      "A callable, or an object with token(), that gives OAUTHBEARER's token (kafka-python's keyword)."),
    K("oauth.cb", CLASS, None, None, MEDIUM,
      "A callable(config) that gives (token, expiry in s[, principal, extensions]) (confluent-kafka's oauth_cb)."),
    K("sasl.oauthbearer.method", STRING, "default", one_of_ignoring_case("default", "oidc"), LOW,
      "oidc: the client gets tokens by client credentials (librdkafka's name)."),
    K("sasl.oauthbearer.config", STRING, None, None, LOW,
      "Text for oauth.cb, or the claims of an unsecured token (librdkafka's name)."),
    K("sasl.oauthbearer.extensions", STRING, None, None, LOW,
      "key=value pairs, separated by commas, sent with the token (librdkafka's name)."),
    K("enable.sasl.oauthbearer.unsecure.jwt", BOOLEAN, False, None, LOW,
      "Whether the client makes unsecured tokens, for development only (librdkafka's name)."),
    K("sasl.oauthbearer.client.credentials.client.id", STRING, None, None, MEDIUM,
      "Client id for the token endpoint."),
    K("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None, None, MEDIUM,
      "Client secret for the token endpoint."),
    K("sasl.oauthbearer.scope", STRING, None, None, MEDIUM, "Scope that the client asks the token endpoint for."),
    K("sasl.oauthbearer.token.endpoint.url", STRING, None, None, MEDIUM, "URL of the token endpoint."),
    K("sasl.oauthbearer.header.urlencode", BOOLEAN, False, None, LOW,
      "Whether the header to the token endpoint has URL-encoded client id and secret."),
    K("sasl.oauthbearer.scope.claim.name", STRING, "scope", None, LOW, "Claim that holds a token's scope."),
    K("sasl.oauthbearer.sub.claim.name", STRING, "sub", None, LOW, "Claim that holds a token's subject."),
    K("sasl.oauthbearer.jwt.retriever.class", CLASS, None, None, MEDIUM,
      "As sasl.oauth.token.provider; names of Java classes have no effect."),
    K("sasl.oauthbearer.assertion.algorithm", STRING, "RS256", one_of_ignoring_case("ES256", "RS256"), MEDIUM,
      "Algorithm that signs an assertion for the token endpoint."),
    K("sasl.oauthbearer.assertion.claim.aud", STRING, None, None, MEDIUM, "Claim aud of an assertion."),
    K("sasl.oauthbearer.assertion.claim.exp.seconds", INT, 300, between(0, 86400), LOW,
      "Seconds until an assertion expires."),
    K("sasl.oauthbearer.assertion.claim.iss", STRING, None, None, MEDIUM, "Claim iss of an assertion."),
    K("sasl.oauthbearer.assertion.claim.jti.include", BOOLEAN, False, None, MEDIUM,
      "Whether an assertion has a random claim jti."),
    K("sasl.oauthbearer.assertion.claim.nbf.seconds", INT, 60, between(0, 3600), LOW,
      "Seconds before now from which an assertion is valid."),
    K("sasl.oauthbearer.assertion.claim.sub", STRING, None, None, MEDIUM, "Claim sub of an assertion."),
    K("sasl.oauthbearer.assertion.file", STRING, None, None, MEDIUM, "File with a ready assertion."),
    K("sasl.oauthbearer.assertion.private.key.file", STRING, None, None, MEDIUM,
      "PEM file with the private key that signs assertions."),
    K("sasl.oauthbearer.assertion.private.key.passphrase", PASSWORD, None, None, MEDIUM,
      "Password of that private key."),
    K("sasl.oauthbearer.assertion.template.file", STRING, None, None, MEDIUM,
      "JSON file with header and claims of assertions."),
)
# fmt: on

KEYS: Final = (*_SSL, *_SASL)
"""The keys of every client, with Kafka's defaults."""

ALIASES: Final = {
    "ssl.cafile": "ssl.ca.location",
    "ssl.certfile": "ssl.certificate.location",
    "ssl.keyfile": "ssl.key.location",
    "ssl.password": "ssl.key.password",
    "ssl.crlfile": "ssl.crl.location",
    "ssl.ciphers": "ssl.cipher.suites",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.username": "sasl.plain.username",
    "sasl.password": "sasl.plain.password",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
}
"""Other name of a key: the key."""

WITHOUT_EFFECT: Final = frozenset(
    {
        "sasl.oauthbearer.allow.unverified.audience",
        "sasl.oauthbearer.allow.unverified.issuer",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.jwt.validator.class",
        "ssl.ca.certificate.stores",
        "ssl.curves.list",
        "ssl.engine.factory.class",
        "ssl.engine.location",
        "ssl.keymanager.algorithm",
        "ssl.provider",
        "ssl.providers",
        "ssl.secure.random.implementation",
        "ssl.sigalgs.list",
        "ssl.trustmanager.algorithm",
    }
)
"""Keys of Java's and librdkafka's internal parts, and of brokers; accepted without effect, with a warning."""

CONTRADICTIONS: Final = (
    ("sasl.jaas.config", "sasl.plain.username"),
    ("sasl.jaas.config", "sasl.plain.password"),
    ("ssl.truststore.location", "ssl.ca.location"),
    ("ssl.truststore.certificates", "ssl.ca.location"),
    ("ssl.keystore.location", "ssl.certificate.location"),
    ("ssl.keystore.certificate.chain", "ssl.certificate.location"),
    ("ssl.keystore.key", "ssl.key.location"),
)
"""Pairs of keys that give the same setting."""
WITH_PASSWORD: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""Mechanisms with a user name and a password."""
EXACT_PASSWORDS: Final = frozenset({"sasl.plain.password"})
"""Passwords of Python's callers, whose blanks count; Kafka drops the blanks around other values."""
