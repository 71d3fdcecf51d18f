"""Numbers and names that stand once, and what programs outside of the package may import."""

from __future__ import annotations

import re
from pathlib import Path

from kafkapy._speedups.network import network_request
from kafkapy._speedups.protocol import data_plane_versions
from kafkapy._speedups.records import record_batch
from kafkapy.broker import data_plane_asks
from kafkapy.errors import ErrorCode
from kafkapy.network.api_table import DATA_PLANE_APIS
from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.protocol.messages.produce import ProduceRequest
from kafkapy.types import CompressionType

ROOT = Path(__file__).parent.parent
SPEEDUPS = ROOT / "kafkapy" / "_speedups"
CODE = re.compile(r"^ +ERROR_(\w+) = (-?\d+)", re.MULTILINE)


def test_error_codes_of_kernels_are_those_of_the_table() -> None:
    text = (SPEEDUPS / "base" / "error_codes.pxd").read_text(encoding="utf-8")
    codes = {name: int(number) for name, number in CODE.findall(text)}
    assert len(codes) > 20
    assert codes == {name: ErrorCode[name].value for name in codes}


def test_error_codes_of_kernels_stand_in_one_place() -> None:
    others = [
        str(path.relative_to(SPEEDUPS))
        for path in SPEEDUPS.rglob("*.p[yx][xd]")
        if path.name != "error_codes.pxd" and CODE.search(path.read_text(encoding="utf-8"))
    ]
    assert others == []


def test_codecs_of_kernels_are_those_of_the_types() -> None:
    assert {codec.config_name: codec.value for codec in CompressionType} == record_batch.CODECS


def test_the_newest_versions_of_produce_and_fetch_stand_in_one_place() -> None:
    for request, versions in ((ProduceRequest, data_plane_versions.PRODUCE), (FetchRequest, data_plane_versions.FETCH)):
        oldest, newest, flexible = versions
        assert (request.VERSIONS.low, request.VERSIONS.high) == (oldest, newest)
        assert DATA_PLANE_APIS[request.API_KEY] == versions
        assert request.FLEXIBLE.low == flexible
    literals = re.compile(r"(?:NEWEST|MAX_VERSION|FLEXIBLE_VERSION) = \d+")
    found = [
        str(path.relative_to(SPEEDUPS))
        for path in (SPEEDUPS / "requests").rglob("*.p[yx][xd]")
        if literals.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_what_the_data_plane_asks_has_its_numbers_from_the_kernel() -> None:
    for name in ("ASK_AUTHORIZE", "ASK_CONVERT", "ASK_VERIFY"):
        assert getattr(data_plane_asks, name) == getattr(network_request, name)
        assert not re.search(rf"^{name}\b", Path(data_plane_asks.__file__).read_text(encoding="utf-8"), re.MULTILINE)


def test_plugins_and_examples_import_public_modules_only() -> None:
    users = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "plugins").rglob("*.py")
        if "build" not in path.parts and "_speedups" in path.read_text(encoding="utf-8")
    ]
    assert users == []
