"""The keywords of the clients, for type checkers.

`KafkaConsumer(**keywords: Unpack[ConsumerOptions])` makes a misspelt keyword an error of mypy, as at run time. Values
may be text as in a properties file, or None for the default. A test compares these types with the definitions of the
keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypedDict

from kafkapy.types import IsolationLevel

__all__ = [
    "AIOAdminOptions",
    "AIOClientOptions",
    "AIOConsumerOptions",
    "AIOProducerOptions",
    "AIOShareConsumerOptions",
    "AdminOptions",
    "ClientOptions",
    "ConsumerOptions",
    "ProducerOptions",
    "ShareConsumerOptions",
]

Number = float | str | None
Switch = bool | str | None
Items = str | Iterable[Any] | None


class ClientOptions(TypedDict, total=False):
    """Keywords of every client."""

    api_version: tuple[int, ...] | str | None
    api_version_auto_timeout_ms: Any
    bootstrap_servers: Items
    bootstrap_timeout_ms: Number
    client_dns_lookup: str | None
    client_id: str | None
    connections_max_idle_ms: Number
    enable_metrics_push: Switch
    enable_sasl_oauthbearer_unsecure_jwt: Switch
    enable_ssl_certificate_verification: Switch
    kafka_client: Any
    metadata_max_age_ms: Number
    metadata_recovery_rebootstrap_trigger_ms: Number
    metadata_recovery_strategy: str | None
    metric_reporters: Items
    metrics_enabled: Any
    metrics_num_samples: Number
    metrics_recording_level: str | None
    metrics_sample_window_ms: Number
    oauth_cb: Any
    receive_buffer_bytes: Number
    receive_message_max_bytes: Number
    reconnect_backoff_max_ms: Number
    reconnect_backoff_ms: Number
    request_timeout_ms: Number
    retry_backoff_max_ms: Number
    retry_backoff_ms: Number
    sasl_client_callback_handler_class: Any
    sasl_jaas_config: str | None
    sasl_kerberos_domain_name: str | None
    sasl_kerberos_keytab: str | None
    sasl_kerberos_kinit_cmd: str | None
    sasl_kerberos_min_time_before_relogin: Number
    sasl_kerberos_name: Any
    sasl_kerberos_principal: str | None
    sasl_kerberos_service_name: str | None
    sasl_kerberos_ticket_renew_jitter: Number
    sasl_kerberos_ticket_renew_window_factor: Number
    sasl_login_callback_handler_class: Any
    sasl_login_class: Any
    sasl_login_connect_timeout_ms: Number
    sasl_login_read_timeout_ms: Number
    sasl_login_refresh_buffer_seconds: Number
    sasl_login_refresh_min_period_seconds: Number
    sasl_login_refresh_window_factor: Number
    sasl_login_refresh_window_jitter: Number
    sasl_login_retry_backoff_max_ms: Number
    sasl_login_retry_backoff_ms: Number
    sasl_mechanism: str | None
    sasl_mechanisms: str | None
    sasl_oauth_token_provider: Any
    sasl_oauthbearer_assertion_algorithm: str | None
    sasl_oauthbearer_assertion_claim_aud: str | None
    sasl_oauthbearer_assertion_claim_exp_seconds: Number
    sasl_oauthbearer_assertion_claim_iss: str | None
    sasl_oauthbearer_assertion_claim_jti_include: Switch
    sasl_oauthbearer_assertion_claim_nbf_seconds: Number
    sasl_oauthbearer_assertion_claim_sub: str | None
    sasl_oauthbearer_assertion_file: str | None
    sasl_oauthbearer_assertion_private_key_file: str | None
    sasl_oauthbearer_assertion_private_key_passphrase: str | None
    sasl_oauthbearer_assertion_template_file: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | None
    sasl_oauthbearer_client_id: str | None
    sasl_oauthbearer_client_secret: str | None
    sasl_oauthbearer_config: str | None
    sasl_oauthbearer_extensions: str | None
    sasl_oauthbearer_header_urlencode: Switch
    sasl_oauthbearer_jwt_retriever_class: Any
    sasl_oauthbearer_method: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_scope_claim_name: str | None
    sasl_oauthbearer_sub_claim_name: str | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_password: str | None
    sasl_plain_password: str | None
    sasl_plain_username: str | None
    sasl_username: str | None
    security_protocol: str | None
    selector: Any
    send_buffer_bytes: Number
    sock_chunk_buffer_count: Any
    sock_chunk_bytes: Any
    socket_connection_setup_timeout_max_ms: Number
    socket_connection_setup_timeout_ms: Number
    socket_options: Items
    ssl_ca_location: str | None
    ssl_ca_pem: str | None
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_certificate_location: str | None
    ssl_certificate_pem: str | None
    ssl_check_hostname: Switch
    ssl_cipher_suites: Items
    ssl_ciphers: Items
    ssl_context: Any
    ssl_crl_location: str | None
    ssl_crlfile: str | None
    ssl_enabled_protocols: Items
    ssl_endpoint_identification_algorithm: str | None
    ssl_key_location: str | None
    ssl_key_password: str | None
    ssl_key_pem: str | None
    ssl_keyfile: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_keystore_key: str | None
    ssl_keystore_location: str | None
    ssl_keystore_password: str | None
    ssl_keystore_type: str | None
    ssl_password: str | None
    ssl_protocol: str | None
    ssl_truststore_certificates: str | None
    ssl_truststore_location: str | None
    ssl_truststore_password: str | None
    ssl_truststore_type: str | None


class ConsumerOptions(ClientOptions, total=False):
    """Keywords of KafkaConsumer."""

    allow_auto_create_topics: Switch
    auto_commit_interval_ms: Number
    auto_offset_reset: str | None
    check_crcs: Switch
    client_rack: str | None
    consumer_timeout_ms: Number
    default_api_timeout_ms: Number
    default_offset_commit_callback: Any
    enable_auto_commit: Switch
    enable_incremental_fetch_sessions: Switch
    exclude_internal_topics: Switch
    fetch_max_bytes: Number
    fetch_max_wait_ms: Number
    fetch_min_bytes: Number
    group_id: str | None
    group_instance_id: str | None
    group_protocol: str | None
    group_remote_assignor: str | None
    heartbeat_interval_ms: Number
    interceptor_classes: Items
    internal_leave_group_on_close: Switch
    isolation_level: str | IsolationLevel | None
    key_deserializer: Any
    leave_group_on_close: Switch
    max_in_flight_requests_per_connection: Any
    max_partition_fetch_bytes: Number
    max_poll_interval_ms: Number
    max_poll_records: Number
    metric_group_prefix: Any
    partition_assignment_strategy: Items
    session_timeout_ms: Number
    value_deserializer: Any


class ShareConsumerOptions(ClientOptions, total=False):
    """Keywords of KafkaShareConsumer."""

    allow_auto_create_topics: Switch
    check_crcs: Switch
    client_rack: str | None
    consumer_timeout_ms: Number
    default_api_timeout_ms: Number
    fetch_max_bytes: Number
    fetch_max_wait_ms: Number
    fetch_min_bytes: Number
    group_id: str | None
    key_deserializer: Any
    max_poll_interval_ms: Number
    max_poll_records: Number
    share_acknowledgement_mode: str | None
    share_acquire_mode: str | None
    value_deserializer: Any


class ProducerOptions(ClientOptions, total=False):
    """Keywords of KafkaProducer."""

    acks: int | str | None
    allow_auto_create_topics: Switch
    batch_size: Number
    buffer_memory: Number
    compression_gzip_level: Number
    compression_lz4_level: Number
    compression_type: str | None
    compression_zstd_level: Number
    delivery_timeout_ms: Number
    enable_idempotence: Switch
    interceptor_classes: Items
    key_serializer: Any
    linger_ms: Number
    max_block_ms: Number
    max_in_flight_requests_per_connection: Number
    max_request_size: Number
    metadata_max_idle_ms: Number
    partitioner: Any
    partitioner_adaptive_partitioning_enable: Switch
    partitioner_availability_timeout_ms: Number
    partitioner_class: Any
    partitioner_ignore_keys: Switch
    retries: Number
    transaction_timeout_ms: Number
    transaction_two_phase_commit_enable: bool
    transactional_id: str | None
    value_serializer: Any


class AdminOptions(ClientOptions, total=False):
    """Keywords of KafkaAdminClient."""

    default_api_timeout_ms: Number
    max_in_flight_requests_per_connection: Any
    retries: Number


class AIOConsumerOptions(ConsumerOptions, total=False):
    """Keywords of AIOKafkaConsumer."""

    loop: Any
    rebalance_timeout_ms: Any


class AIOProducerOptions(ProducerOptions, total=False):
    """Keywords of AIOKafkaProducer."""

    loop: Any
    max_batch_size: Number


class AIOAdminOptions(AdminOptions, total=False):
    """Keywords of AIOKafkaAdminClient."""

    loop: Any


class AIOClientOptions(ClientOptions, total=False):
    """Keywords of AIOKafkaClient."""

    loop: Any


class AIOShareConsumerOptions(ShareConsumerOptions, total=False):
    """Keywords of AIOKafkaShareConsumer."""

    loop: Any
