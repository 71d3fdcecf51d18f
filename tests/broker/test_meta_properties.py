"""meta.properties: what is read, what is refused, what is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkapy.broker import meta_properties
from kafkapy.broker.meta_properties import (
    InconsistentBrokerIdError,
    InconsistentClusterIdError,
    MetaProperties,
    StartupError,
)
from kafkapy.types import uuid_from_string


def write(directory: Path, text: str) -> str:
    directory.mkdir(exist_ok=True)
    (directory / "meta.properties").write_text(text)
    return str(directory)


def test_a_directory_without_the_file_says_nothing(tmp_path: Path) -> None:
    assert meta_properties.read(str(tmp_path)) is None


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    meta_properties.write_all([str(tmp_path)], 7, "WNzc7e3mQT2qdN0vVIYyZg")
    meta = meta_properties.read(str(tmp_path))
    assert meta == MetaProperties(7, "WNzc7e3mQT2qdN0vVIYyZg", meta.directory_id)
    assert uuid_from_string(meta.directory_id).int >= 100
    text = (tmp_path / "meta.properties").read_text()
    assert "version=0\n" in text
    assert f"directory.id={meta.directory_id}\n" in text
    meta_properties.write_all([str(tmp_path)], 7, "WNzc7e3mQT2qdN0vVIYyZg")
    assert (tmp_path / "meta.properties").read_text() == text


def test_each_directory_has_an_id_of_its_own(tmp_path: Path) -> None:
    directories = [write(tmp_path / name, "broker.id=1\n") for name in ("one", "two")]
    meta_properties.write_all(directories, 1, "abc")
    one, two = meta_properties.read_all(directories).values()
    assert one is not None
    assert two is not None
    assert one.directory_id != two.directory_id
    (tmp_path / "two" / "meta.properties").write_text((tmp_path / "one" / "meta.properties").read_text())
    with pytest.raises(StartupError, match="same directory.id"):
        meta_properties.read_all(directories)


def test_unknown_keys_and_the_directory_id_are_kept(tmp_path: Path) -> None:
    text = "version=0\nbroker.id=3\ndirectory.id=EY3yYTSySVGtGjHjWLMcRA\nfuture.key=a\\:b \\u00e4\n"
    directory = write(tmp_path, text)
    meta_properties.write_all([directory], 3, "abc")
    meta = meta_properties.read(directory)
    assert meta == MetaProperties(3, "abc", "EY3yYTSySVGtGjHjWLMcRA", "0", {"future.key": "a:b ä"})
    assert (tmp_path / "meta.properties").read_bytes().isascii()


def test_version_1_of_the_file_stays_version_1(tmp_path: Path) -> None:
    directory = write(tmp_path, "version=1\nnode.id=3\ncluster.id=abc\n")
    meta_properties.write_all([directory], 3, "abc")
    text = (tmp_path / "meta.properties").read_text()
    assert "version=1\n" in text
    assert "node.id=3\n" in text
    assert "broker.id" not in text


def test_the_file_of_apache_kafka_is_understood(tmp_path: Path) -> None:
    text = "#\n#Tue Nov 05 10:00:00 UTC 2024\ncluster.id=abc\nversion=0\nbroker.id=3\n"
    assert meta_properties.read(write(tmp_path, text)) == MetaProperties(3, "abc")


def test_a_file_that_says_the_same_is_left_alone(tmp_path: Path) -> None:
    text = "#mine\nversion=0\nbroker.id=3\ncluster.id=abc\ndirectory.id=EY3yYTSySVGtGjHjWLMcRA\n"
    directory = write(tmp_path, text)
    meta_properties.write_all([directory], 3, "abc")
    assert (tmp_path / "meta.properties").read_text() == text


@pytest.mark.parametrize(
    "text",
    [
        "version=9\nbroker.id=1\n",
        "version=0\nbroker.id=one\n",
        "version=0\ndirectory.id=no id\n",
        "version=0\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n",
    ],
)
def test_a_file_that_makes_no_sense_stops_the_start(tmp_path: Path, text: str) -> None:
    with pytest.raises(StartupError, match=r"meta\.properties"):
        meta_properties.read(write(tmp_path, text))


def test_directories_of_two_clusters_do_not_go_together(tmp_path: Path) -> None:
    one = write(tmp_path / "one", "version=0\nbroker.id=1\ncluster.id=abc\n")
    two = write(tmp_path / "two", "version=0\nbroker.id=1\ncluster.id=xyz\n")
    with pytest.raises(InconsistentClusterIdError, match="abc.*xyz"):
        meta_properties.read_all([one, two])


def test_directories_of_two_brokers_do_not_go_together(tmp_path: Path) -> None:
    one = write(tmp_path / "one", "version=0\nbroker.id=1\ncluster.id=abc\n")
    two = write(tmp_path / "two", "version=0\nbroker.id=2\ncluster.id=abc\n")
    with pytest.raises(InconsistentBrokerIdError):
        meta_properties.read_all([one, two])


def test_a_directory_of_another_cluster_is_refused(tmp_path: Path) -> None:
    found = meta_properties.read_all([write(tmp_path, "version=0\nbroker.id=1\ncluster.id=abc\n")])
    meta_properties.check_cluster_id(found, "abc")
    with pytest.raises(InconsistentClusterIdError, match="abc.*xyz"):
        meta_properties.check_cluster_id(found, "xyz")
