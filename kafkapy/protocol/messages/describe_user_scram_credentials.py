"""DescribeUserScramCredentials, API key 50."""

from kafkapy.protocol.schema import Request, Response, Struct, array, int8, int16, int32, string


class DescribeUserScramCredentialsRequest(Request, key=50, versions="0", flexible="0+"):
    """Asks which SCRAM credentials users have; null or empty for all users."""

    class User(Struct):
        name: str = string()

    users: list[User] | None = array(User, nullable="0+")


class DescribeUserScramCredentialsResponse(Response, key=50, versions="0", flexible="0+"):
    """The mechanisms and iterations of every user; never the credentials."""

    class Result(Struct):
        class CredentialInfo(Struct):
            mechanism: int = int8()
            iterations: int = int32()

        user: str = string()
        error_code: int = int16(default=0)
        error_message: str | None = string(nullable="0+", default=None)
        credential_infos: list[CredentialInfo] = array(CredentialInfo)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
    results: list[Result] = array(Result)
