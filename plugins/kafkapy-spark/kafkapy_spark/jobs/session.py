"""The options that all job commands have, and the SparkSession that they run on.

A command runs on the session that is active, or makes one: with spark-submit's settings where that runs it (a script of
two lines that calls kafkapy_spark.cli.main), else in this process with those of kafkapy_spark.configure. --master and
--conf go before both.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kafkapy.errors import IllegalArgumentError, KafkaError
from kafkapy.tools.options import (
    DEFAULT_BOOTSTRAP,
    bootstrap_option,
    command_config_option,
    given_settings,
    json_option,
    key_values,
    log_to_stderr,
    one_sentence,
)
from kafkapy.tools.output import Output
from kafkapy_spark.jobs.progress import job_progress
from kafkapy_spark.session import configure
from kafkapy_spark.spark_version import require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkapy_spark.jobs.summary import Summary

__all__ = ["Job", "job_options", "kafka_options"]

F = TypeVar("F", bound=Callable[..., Any])

_RAISED: Final = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception): +(\S.*)$", re.MULTILINE)
"""The last line of a Python traceback, many of which are in the texts of Spark's errors."""
_CALLED: Final = re.compile(r"^An error occurred while calling \S+\n: (?:[\w.$]+: )?")
"""What py4j writes before the text of a Java exception."""
_LOG4J: Final = Path(__file__).with_name("quiet-log4j2.properties")
_QUIET: Final[Mapping[str, str]] = {
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}",
}
"""Unless --verbose or --conf say otherwise: the progress has the terminal to itself."""
_NOTICES: Final = (b"WARNING: Using incubator modules", b"WARNING: package sun.security")
"""How lines begin that a JVM writes about the options that Spark starts it with."""
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""spark-submit sets this variable for the programs that it runs."""


@dataclass(frozen=True)
class Job:
    """What the shared options say."""

    kafka: dict[str, str]
    """Keys of the Kafka clients, with bootstrap.servers."""
    master: str | None = None
    conf: dict[str, str] = field(default_factory=dict)
    as_json: bool = False
    verbose: bool = False

    def run(self, what: str, function: Callable[..., Summary], *arguments: Any, **settings: Any) -> None:
        """Runs function(session, *arguments, kafka=..., progress=..., **settings), with progress on stderr, and prints
        what it has done. `what` names the job and what it works on. A session that was not there before is stopped."""
        with self._session(what) as spark, job_progress(spark, what) as progress:
            summary = function(spark, *arguments, kafka=self.kafka, progress=progress, **settings)
        summary.show(Output(self.as_json))

    @contextmanager
    def _session(self, what: str) -> Iterator[SparkSession]:
        try:
            require_spark()
        except ImportError as error:
            raise IllegalArgumentError(str(error)) from None
        from pyspark.sql import SparkSession

        active = SparkSession.getActiveSession()
        if active is not None:
            if self.master is not None:
                raise IllegalArgumentError("--master cannot be given where a Spark session is there already")
            for name, value in self.conf.items():
                active.conf.set(name, value)
            yield active
            return
        if self.master is None or self.master.startswith("local"):
            # Workers are to be this Python, with what is installed in it.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        builder = SparkSession.builder.appName(f"kafkapy-spark {what}")
        if _SUBMITTED not in os.environ:
            builder = configure(builder)
            for name, value in () if self.verbose else _QUIET.items():
                builder = builder.config(name, value)
        if self.master is not None:
            builder = builder.master(self.master)
        for name, value in self.conf.items():
            builder = builder.config(name, value)
        with nullcontext() if self.verbose else _without_notices():
            spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def _without_notices() -> Iterator[None]:
    """What programs that are started meanwhile write to stderr comes through, for as long as they run, but for what the
    JVM says of its own options."""
    read, write = os.pipe()
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(write, 2)
    os.close(write)
    Thread(target=_pass_on, args=(read, os.dup(kept)), daemon=True).start()
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _pass_on(source: int, target: int) -> None:
    with open(source, "rb") as lines, open(target, "wb", buffering=0) as stderr:
        for line in lines:
            if not line.startswith(_NOTICES):
                stderr.write(line)


def job_options(command: F) -> F:
    """Adds the options that jobs share, which the command gets as `job`. Bad input, and what fails with an error of
    Kafka's or Spark's, is one sentence and exit code 1."""

    @bootstrap_option
    @command_config_option
    @click.option(
        "--kafka",
        "-X",
        "properties",
        multiple=True,
        metavar="KEY=VALUE",
        help="Configuration key of the Kafka clients.",
    )
    @click.option("--master", metavar="URL", show_default="spark-submit's, or local[*]", help="Spark's master.")
    @click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Configuration key of Spark.")
    @json_option
    @click.option(
        "--verbose", "-v", is_flag=True, help="Print the logs of Spark and of the Kafka clients, and tracebacks."
    )
    @wraps(command)
    def run(
        bootstrap: str | None,
        command_config: str | None,
        properties: tuple[str, ...],
        master: str | None,
        conf: tuple[str, ...],
        as_json: bool,
        verbose: bool,
        **arguments: Any,
    ) -> None:
        log_to_stderr(verbose)
        try:
            kafka = {"bootstrap.servers": DEFAULT_BOOTSTRAP} | given_settings(bootstrap, command_config, properties)
            command(job=Job(kafka, master, key_values(conf), as_json, verbose), **arguments)
        except click.exceptions.ClickException:
            raise
        except Exception as error:
            if verbose or not _is_expected(error):
                raise
            raise click.ClickException(one_sentence(reason(error))) from None

    return run  # type: ignore[return-value]


def kafka_options(kafka: Mapping[str, str]) -> dict[str, str]:
    """Keys of the Kafka clients as options of Spark's readers and writers."""
    return {f"kafka.{name}": value for name, value in kafka.items()}


def reason(error: Exception) -> str:
    """Why something failed, out of all that Spark says: the error that Python raised, on whatever process, or Spark's
    own first line."""
    text = _CALLED.sub("", str(error).strip())
    raised = _RAISED.findall(text)
    return raised[-1] if raised else text.partition("\n")[0]


def _is_expected(error: Exception) -> bool:
    """Whether it is about what was asked for or what runs elsewhere, not a mistake in this program."""
    if isinstance(error, (KafkaError, ValueError, OSError)):
        return True
    try:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException
    except ImportError:
        return False
    return isinstance(error, (PySparkException, Py4JJavaError))
