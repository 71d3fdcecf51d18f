"""The broker's keys for the metadata stores ZooKeeper and etcd.

The names and defaults of ZooKeeper's keys are those of Apache Kafka 3.9.
"""

from __future__ import annotations

from kafkapy.config.broker_keys import BOOLEAN, HIGH, INT, LIST, LOW, MEDIUM, NO_EFFECT, STRING, K
from kafkapy.config.config_def import at_least, matches, non_empty, one_of
from kafkapy.types import ConfigType

PASSWORD = ConfigType.PASSWORD
_ENDPOINT = r"(https?://)?(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):[0-9]{1,5}/?"
_STORE_TYPES = ("PEM", "PKCS12", "JKS")

# fmt: off
ZOOKEEPER_KEYS = (
    K("zookeeper.connect", STRING, None, None, HIGH,
      "ZooKeeper servers, host:port, comma-separated, with an optional /path at the end. Setting it selects the "
      "zookeeper metadata store."),
    K("zookeeper.session.timeout.ms", INT, 18000, None, HIGH, "Session timeout in ms."),
    K("zookeeper.connection.timeout.ms", INT, None, None, HIGH,
      "Time in ms to wait for a connection. Not set: zookeeper.session.timeout.ms."),
    K("zookeeper.set.acl", BOOLEAN, False, None, HIGH,
      "Whether the broker creates znodes that only brokers may change. ZooKeeper must know the broker, by its TLS "
      "certificate or by kafkapy.zookeeper.sasl.jaas.config."),
    K("kafkapy.zookeeper.sasl.jaas.config", PASSWORD, None, None, MEDIUM,
      "Login to ZooKeeper, the content of the section Client of Kafka's JAAS file: "
      "org.apache.zookeeper.server.auth.DigestLoginModule required username=\"...\" password=\"...\"; It needs the "
      "package pure-sasl."),
    K("zookeeper.max.in.flight.requests", INT, 10, at_least(1), HIGH,
      "Largest number of unanswered requests to ZooKeeper."),
    K("zookeeper.ssl.client.enable", BOOLEAN, False, None, MEDIUM,
      "Whether the broker connects to ZooKeeper over TLS."),
    K("zookeeper.clientCnxnSocket", STRING, None, None, MEDIUM, NO_EFFECT),
    K("zookeeper.ssl.keystore.location", STRING, None, None, MEDIUM,
      "Keystore with the broker's certificate for TLS to ZooKeeper."),
    K("zookeeper.ssl.keystore.password", PASSWORD, None, None, MEDIUM, "Password of that keystore."),
    K("zookeeper.ssl.keystore.type", STRING, None, None, MEDIUM,
      "Format of that keystore: PEM, JKS or PKCS12. Not set: by its content."),
    K("zookeeper.ssl.truststore.location", STRING, None, None, MEDIUM,
      "Truststore for TLS to ZooKeeper. Not set: the system's authorities."),
    K("zookeeper.ssl.truststore.password", PASSWORD, None, None, MEDIUM, "Password of that truststore."),
    K("zookeeper.ssl.truststore.type", STRING, None, None, MEDIUM,
      "Format of that truststore: PEM, JKS or PKCS12. Not set: by its content."),
    K("zookeeper.ssl.protocol", STRING, "TLSv1.2", None, LOW, "TLS version towards ZooKeeper."),
    K("zookeeper.ssl.enabled.protocols", LIST, None, None, LOW,
      "TLS versions accepted towards ZooKeeper. Not set: zookeeper.ssl.protocol."),
    K("zookeeper.ssl.cipher.suites", LIST, None, None, LOW,
      "Cipher suites offered to ZooKeeper with TLS 1.2. Not set: OpenSSL's."),
    K("zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS", None, LOW,
      "Whether TLS compares ZooKeeper's host name with its certificate (HTTPS), or not (empty)."),
    K("zookeeper.ssl.crl.enable", BOOLEAN, False, None, LOW, "Whether TLS checks revocation lists. True is refused."),
    K("zookeeper.ssl.ocsp.enable", BOOLEAN, False, None, LOW, "Whether TLS checks revocation online. True is refused."),
    K("zookeeper.metadata.migration.enable", BOOLEAN, False, None, HIGH, NO_EFFECT),
    K("zookeeper.metadata.migration.min.batch.size", INT, 200, at_least(1), MEDIUM, NO_EFFECT, internal=True),
    K("authorizer.zookeeper.url", STRING, None, None, LOW, "ZooKeeper servers for ACLs. Not set: zookeeper.connect."),
    K("authorizer.zookeeper.connection.timeout.ms", INT, None, None, LOW,
      "Time in ms to wait for that connection. Not set: zookeeper.connection.timeout.ms."),
    K("authorizer.zookeeper.session.timeout.ms", INT, None, None, LOW,
      "Timeout in ms of that session. Not set: zookeeper.session.timeout.ms."),
    K("authorizer.zookeeper.max.in.flight.requests", INT, None, None, LOW,
      "Largest number of unanswered requests of that session. Not set: zookeeper.max.in.flight.requests."),
)

ETCD_KEYS = (
    K("kafkapy.etcd.endpoints", LIST, [], matches(_ENDPOINT, "http://host:port or https://host:port, comma-separated"),
      HIGH,
      "Client URLs of the etcd members, http://host:port or https://host:port, comma-separated. Setting it selects the "
      "etcd metadata store. It needs etcd 3.4 or newer, with its JSON gateway (--enable-grpc-gateway, by default on)."),
    K("kafkapy.etcd.prefix", STRING, "/kafkapy", non_empty(), MEDIUM,
      "Beginning of all keys in etcd, the same for all brokers of a cluster and different for each cluster."),
    K("kafkapy.etcd.session.timeout.ms", INT, 18000, at_least(2000), HIGH,
      "Session timeout in ms, rounded up to seconds. etcd removes the registration of a broker that has not renewed "
      "its session for so long."),
    K("kafkapy.etcd.connection.timeout.ms", INT, None, at_least(1), HIGH,
      "Time in ms to wait for etcd at the start. Not set: kafkapy.etcd.session.timeout.ms."),
    K("kafkapy.etcd.user", STRING, None, None, MEDIUM,
      "User of etcd. It needs read and write permission for the keys below kafkapy.etcd.prefix."),
    K("kafkapy.etcd.password", PASSWORD, None, None, MEDIUM, "Password of that user."),
    K("kafkapy.etcd.ssl.truststore.location", STRING, None, None, MEDIUM,
      "Truststore for TLS to etcd. Not set: the system's authorities."),
    K("kafkapy.etcd.ssl.truststore.type", STRING, "PEM", one_of(*_STORE_TYPES), MEDIUM, "Format of that truststore."),
    K("kafkapy.etcd.ssl.truststore.password", PASSWORD, None, None, MEDIUM, "Password of that truststore."),
    K("kafkapy.etcd.ssl.keystore.location", STRING, None, None, MEDIUM,
      "Keystore with the broker's certificate for TLS to etcd. Not set: the broker shows none."),
    K("kafkapy.etcd.ssl.keystore.type", STRING, "PEM", one_of(*_STORE_TYPES), MEDIUM, "Format of that keystore."),
    K("kafkapy.etcd.ssl.keystore.password", PASSWORD, None, None, MEDIUM, "Password of that keystore."),
    K("kafkapy.etcd.ssl.key.password", PASSWORD, None, None, MEDIUM, "Password of the private key in that keystore."),
    K("kafkapy.etcd.ssl.endpoint.identification.algorithm", STRING, "https", one_of("https", ""), LOW,
      "Whether TLS compares etcd's host name with its certificate (https), or not (empty)."),
)
