"""JVMs that tests start: they live for seconds, so what only pays later is left out."""

from __future__ import annotations

import shlex
from collections.abc import MutableMapping

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"


def confs() -> list[str]:
    """Arguments of spark-submit. Java's options go before those of a program."""
    return ["--conf", "spark.ui.enabled=false", "--conf", f"spark.driver.defaultJavaOptions={SHORT_LIVED}"]


def choose(environment: MutableMapping[str, str]) -> None:
    """Sessions that Python programs make have such a JVM."""
    environment["PYSPARK_SUBMIT_ARGS"] = shlex.join([*confs(), "pyspark-shell"])
