from collections.abc import Sequence

class TlsContext:
    server: bool
    def __init__(
        self,
        server: bool,
        private_key: bytes | None = ...,
        chain: Sequence[bytes] = ...,
        trusted: Sequence[bytes] | None = ...,
        client_auth: str = ...,
        protocols: Sequence[str] = ...,
        cipher_suites: Sequence[str] = ...,
        check_hostname: bool = ...,
        verify: bool = ...,
        revoked: Sequence[bytes] = ...,
    ) -> None: ...
    def counters(self) -> dict[str, int]: ...
