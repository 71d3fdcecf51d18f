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


def write(directory: Path, text: str) -> str:
    directory.mkdir(exist_ok=True)
    (directory / "meta.properties").write_text(text)
    return str(directory)


def test_a_directory_without_the_file_says_nothing(tmp_path: Path) -> None:
    assert meta_properties.read(str(tmp_path)) is None


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    meta_properties.write_all([str(tmp_path)], 7, "WNzc7e3mQT2qdN0vVIYyZg")
    assert meta_properties.read(str(tmp_path)) == MetaProperties(7, "WNzc7e3mQT2qdN0vVIYyZg")
    assert "version=0\n" in (tmp_path / "meta.properties").read_text()


def test_the_file_of_apache_kafka_is_understood(tmp_path: Path) -> None:
    text = "#\n#Tue Nov 05 10:00:00 UTC 2024\ncluster.id=abc\nversion=0\nbroker.id=3\n"
    assert meta_properties.read(write(tmp_path, text)) == MetaProperties(3, "abc")


def test_a_file_that_says_the_same_is_left_alone(tmp_path: Path) -> None:
    text = "#mine\nversion=0\nbroker.id=3\ncluster.id=abc\n"
    directory = write(tmp_path, text)
    meta_properties.write_all([directory], 3, "abc")
    assert (tmp_path / "meta.properties").read_text() == text


@pytest.mark.parametrize("text", ["version=9\nbroker.id=1\n", "version=0\nbroker.id=one\n"])
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
