"""UpdateFeatures, API key 57."""

from kafkapy.protocol.schema import Request, Response, Struct, array, boolean, int8, int16, int32, string


class UpdateFeaturesRequest(Request, key=57, versions="0-2", flexible="0+"):
    """Finalizes feature levels of the cluster (KIP-584)."""

    class FeatureUpdate(Struct):
        feature: str = string()
        max_version_level: int = int16()
        allow_downgrade: bool = boolean("0", default=False)
        upgrade_type: int = int8("1+", default=1)

    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdate] = array(FeatureUpdate)
    validate_only: bool = boolean("1+", default=False)


class UpdateFeaturesResponse(Response, key=57, versions="0-2", flexible="0+"):
    """The outcome, for every feature in versions 0 and 1."""

    class Result(Struct):
        feature: str = string()
        error_code: int = int16(default=0)
        error_message: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
    results: list[Result] = array(Result, "0-1", default=[], ignorable=True)
