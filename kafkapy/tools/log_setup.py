"""The broker's log: its destination and the format of its lines.

The default is `ts=... level=... logger=... key=value ... msg="..."` on stderr. A logging file is a properties file
(config/logging.properties shows all keys):

    root=INFO                              level of every logger without a level here
    logger.kafka.request.logger=DEBUG      level of one logger and those below it; the names are Kafka's
    output=stderr                          stderr, stdout, or the path of a file to append to
    format=auto                            auto (short lines on a terminal, keyvalue elsewhere), keyvalue or json
    repeated=1000                          lines of a kind (INFO and above) written at once; then one a second
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from typing import Any, Final

from kafkapy.config.properties import load_properties
from kafkapy.errors import ConfigError
from kafkapy.tools.log_output import REPEATED, LineLimit, LogOutput
from kafkapy.tools.terminal import json_without_controls, printable

LOGGING_ENVIRONMENT: Final = "KAFKAPY_LOGGING"
"""The environment variable with a logging file, without --logging."""

SERVER_LOGGER: Final = "kafka.server.KafkaServer"

LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}
"""Kafka's level names and the numbers of Python's logging."""

FORMATS: Final = ("auto", "keyvalue", "json")

_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """The `extra=` of a log call: the key=value part of a line."""
    return {key: value for key, value in vars(record).items() if key not in _PLAIN}


def _timestamp(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"


def _quoted(value: object) -> str:
    text = str(value)
    if text and not any(char in text for char in ' "=\n\\\t') and text == printable(text):
        return text
    # A line stays one line whatever a client has put into its client id.
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\r", "\\r")
    return f'"{printable(escaped, one_line=True)}"'


class KeyValueFormatter(logging.Formatter):
    """One line of key=value for each record.

    The lines of a traceback follow. Used by the handler's thread.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        parts = [
            f"ts={_timestamp(record)}",
            f"level={'WARN' if record.levelno == logging.WARNING else record.levelname}",
            f"logger={record.name}",
            f"thread={_quoted(record.threadName)}",
            f"msg={_quoted(record.getMessage())}",
        ]
        parts += [f"{key}={_quoted(value)}" for key, value in fields_of(record).items()]
        line = " ".join(parts)
        if record.exc_info:
            line += "\n" + printable(self.formatException(record.exc_info))
        return line


class TerminalFormatter(logging.Formatter):
    """Short lines for a person: time, level, message, key=value.

    It omits the level INFO, and prints the start as a separate block. Used by the handler's thread.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line, or the block."""
        if _is_start(record):
            return _start_block(fields_of(record))
        parts = [time.strftime("%H:%M:%S", time.localtime(record.created))]
        if record.levelno != logging.INFO:
            parts.append("WARN" if record.levelno == logging.WARNING else record.levelname)
        parts.append(printable(record.getMessage(), one_line=True))
        parts += [f"{key}={_quoted(value)}" for key, value in fields_of(record).items()]
        line = " ".join(parts)
        if record.exc_info:
            line += "\n" + printable(self.formatException(record.exc_info))
        return line


class _StartInOneBlock(logging.Filter):
    """Drops the steps of a start, except warnings and errors."""

    def __init__(self) -> None:
        super().__init__()
        self._started = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is shown."""
        self._started = self._started or _is_start(record)
        return self._started or record.levelno > logging.INFO


def _is_start(record: logging.LogRecord) -> bool:
    return record.name == SERVER_LOGGER and record.msg == "started"


def _start_block(fields: Mapping[str, Any]) -> str:
    listeners, directories = (str(fields[key]).split(",") for key in ("listeners", "log_dirs"))
    lines = [f"kafkapy {fields['version']} is ready after {float(fields['seconds']):.2f} s. Ctrl-C stops it."]
    lines += [f"  listening on {each}" for each in listeners]
    lines += [f"  data in      {each}" for each in directories]
    lines.append(f"  broker       {fields['broker_id']} of cluster {fields['cluster_id']}")
    return printable("\n".join(lines))


class JsonFormatter(logging.Formatter):
    """One JSON object for each record, including tracebacks.

    Used by the handler's thread.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        import json

        out: dict[str, Any] = {
            "ts": _timestamp(record),
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            "msg": record.getMessage(),
        } | fields_of(record)
        if record.exc_info:
            out["exception"] = self.formatException(record.exc_info)
        return json_without_controls(json.dumps(out, default=str))


def configure_logging(path: str | None = None, environment: Mapping[str, str] | None = None) -> None:
    """Set up the root logger from a logging file.

    The file is `path`, else the one in the environment; without either, INFO goes to stderr. ConfigError for an
    unreadable file, an unknown key, level, format or output.
    """
    path = path or (os.environ if environment is None else environment).get(LOGGING_ENVIRONMENT)
    levels: dict[str, int] = {"": logging.INFO}
    output, form, repeated = "stderr", "auto", REPEATED
    if path:
        properties = load_properties(path)
        for key, value in properties.items():
            line = properties.line_of(key)
            if key == "root" or key.startswith("logger."):
                level = LEVELS.get(value.upper())
                if level is None:
                    raise ConfigError(key, value, f"must be one of {', '.join(LEVELS)}", line, path)
                levels["" if key == "root" else key.removeprefix("logger.")] = level
            elif key == "output":
                output = value
            elif key == "format":
                if value not in FORMATS:
                    raise ConfigError(key, value, f"must be one of {', '.join(FORMATS)}", line, path)
                form = value
            elif key == "repeated":
                if not (value.isascii() and value.isdigit()):
                    raise ConfigError(key, value, "must be a number of lines, 0 for no limit", line, path)
                repeated = int(value)
            else:
                known = "root, logger.<name>, output, format, repeated"
                raise ConfigError(key, value, f"not a logging key ({known})", line, path)
    handler = _handler(output, path, LineLimit(repeated))
    if form == "auto" and isinstance(handler, LogOutput) and handler.is_terminal:
        handler.setFormatter(TerminalFormatter())
        if not path:
            handler.addFilter(_StartInOneBlock())
    else:
        handler.setFormatter(JsonFormatter() if form == "json" else KeyValueFormatter())
    logging.addLevelName(LEVELS["TRACE"], "TRACE")
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    for name, level in levels.items():
        logging.getLogger(name or None).setLevel(level)


def _handler(output: str, source: str | None, limit: LineLimit) -> logging.Handler:
    if output in ("stderr", "stdout"):
        return LogOutput.to_standard(output, limit)
    try:
        return LogOutput.to_file(output, limit)
    except OSError as error:
        raise ConfigError("output", output, f"cannot be written: {error.strerror}", None, source) from error
