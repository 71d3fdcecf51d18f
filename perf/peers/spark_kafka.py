"""Spark's own Kafka connector, its jars resolved from Maven Central into a cache. Raises PeerMissingError where that
can't be had."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from peers.apache_kafka import CACHE, PeerMissingError

FALLBACKS = ("4.2.0", "4.1.3", "4.0.0")
"""The releases that are tried where Maven Central has none of pyspark's version."""
_TOKEN_PROVIDER = "4.0.0"
"""The last release that Maven Central has of it; the connector of later ones works with it (without delegation tokens,
nothing else of it is used)."""
_NEEDED = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
"""What of its dependencies is not among pyspark's own jars."""

# Spark's parent project names another mirror first, which is not reachable everywhere Maven Central is.
_SETTINGS = """<settings><mirrors><mirror><id>central-only</id><mirrorOf>*</mirrorOf>
<url>https://repo.maven.apache.org/maven2</url></mirror></mirrors></settings>
"""
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>kafkapy.peers</groupId><artifactId>spark-sql-kafka</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.13</artifactId>
<version>{}</version></dependency>
<dependency><groupId>org.apache.spark</groupId><artifactId>spark-token-provider-kafka-0-10_2.13</artifactId>
<version>{}</version></dependency>
</dependencies></project>
"""


def jars(version: str) -> tuple[str, list[Path]]:
    """The connector of that version of Spark, or of a fallback: its release, and the jars for `spark.jars`."""
    reasons = []
    for release in dict.fromkeys((version, *FALLBACKS)):
        try:
            libs = _fetched(release)
        except PeerMissingError as error:
            reasons.append(f"{release}: {error}")
            continue
        return release, sorted(path for path in libs.glob("*.jar") if path.name.startswith(_NEEDED))
    raise PeerMissingError("; ".join(reasons))


def _fetched(release: str) -> Path:
    folder = CACHE / f"spark-sql-kafka-{release}"
    if (folder / "complete").exists():
        return folder / "libs"
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise PeerMissingError(f"{program} is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "settings.xml").write_text(_SETTINGS)
    (folder / "pom.xml").write_text(_POM.format(release, _TOKEN_PROVIDER))
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=libs"]
    fetched = subprocess.run(
        ["mvn", "-q", "-B", "-U", "-s", "settings.xml", *goal], cwd=folder, capture_output=True, text=True, timeout=900
    )
    if fetched.returncode != 0:
        raise PeerMissingError(f"Maven Central has not given it: {fetched.stdout.strip()[:300]}")
    (folder / "complete").touch()
    return folder / "libs"
