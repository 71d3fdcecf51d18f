"""Output of commands: tables, tab-separated lines, or JSON.

A terminal gets tables, a pipe gets lines. Only a terminal needs rich, so that a command in a pipe starts fast.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkapy.tools.terminal import echo, fitted, json_without_controls, printable

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Column", "Output", "Progress", "counted", "is_regular_file", "progress", "size_text", "tell", "time_text"]

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""
NOTHING = "-"
"""Stands for None in tables and lines."""


@dataclass(frozen=True)
class Column:
    """A column: its key in the rows, its heading, its style.

    A terminal narrower than WIDE characters omits a `quiet` column (long ids that few readers need).
    """

    key: str
    heading: str = ""
    right: bool = False
    style: str | None = None
    quiet: bool = False

    @property
    def title(self) -> str:
        """The heading; by default the key in words."""
        return self.heading or self.key.replace("_", " ")


WIDE = 120
GAP = 3
NARROW_GAP = 2
"""Characters between two columns, and the same for narrow terminals."""


class Output:
    """The destination of a command's results.

    Tests give a `console`; otherwise it is made from stdout.
    """

    def __init__(self, as_json: bool = False, console: Console | None = None) -> None:
        self.as_json = as_json
        self._console = console
        self._headed = False
        self.terminal = not as_json and (console is not None or sys.stdout.isatty())

    @property
    def console(self) -> Console:
        """rich's view of the terminal."""
        if self._console is None:
            from rich.console import Console

            self._console = Console(highlight=False)
        return self._console

    def json(self, value: Any) -> None:
        """One JSON document: indented on a terminal, one line in a pipe."""
        text = json.dumps(value, indent=2 if sys.stdout.isatty() else None, default=_jsonable, ensure_ascii=False)
        print(json_without_controls(text))

    def rows(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], empty: str = "") -> None:
        """Print a table.

        JSON is an array of the rows with all their keys; lines begin with one line of column names. `empty` is the text
        for a person when there are no rows, with the next step.
        """
        if self.as_json:
            self.json(rows)
        elif self.terminal and not rows and empty:
            self.say(empty)
        elif self.terminal:
            self._table(rows, columns)
        else:
            print("\t".join(column.key for column in columns))
            for row in rows:
                print("\t".join(_line_text(row.get(column.key)) for column in columns))

    def names(self, names: Sequence[str]) -> None:
        """One name per line."""
        if self.as_json:
            self.json(names)
        else:
            for name in names:
                echo(name)

    def say(self, text: str, style: str | None = None) -> None:
        """Print a sentence for a person; nothing in JSON."""
        if self.terminal:
            self.console.print(
                fitted(printable(text), self.console.file), style=style, markup=False, highlight=False, soft_wrap=True
            )
        elif not self.as_json:
            print(printable(text))

    def heading(self, text: str, *details: str) -> None:
        """Print the title of the next table, on a terminal only.

        A blank line separates it from the table before.
        """
        if self.terminal:
            from rich.text import Text

            if self._headed:
                self.console.print()
            self._headed = True
            line = Text(printable(text, one_line=True), style="bold")
            for detail in details:
                line.append("  ")
                line.append(printable(detail, one_line=True), style="not bold dim")
            self.console.print(line, soft_wrap=True)

    def _table(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> None:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        narrow = self.console.width < WIDE
        shown = [column for column in columns if not (narrow and column.quiet)]
        cells = [[printable(_cell_text(row.get(column.key)), one_line=True) for column in shown] for row in rows]
        fitted = _fit(shown, cells, self.console.width)
        if fitted is None:
            self._records(shown, cells)
            return
        gap, widths = fitted
        table = Table(
            box=box.SIMPLE_HEAD,
            header_style="bold",
            show_edge=False,
            pad_edge=False,
            padding=(0, 1, 0, gap - NARROW_GAP),
        )
        for column, width in zip(shown, widths, strict=True):
            table.add_column(column.title, justify="right" if column.right else "left", overflow="fold", width=width)
        for row in cells:
            table.add_row(*(Text(cell, style=column.style or "") for cell, column in zip(row, shown, strict=True)))
        self.console.print(table)

    def _records(self, columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> None:
        """Print rows one below the other, one line per column.

        For a terminal that is too narrow for the headings.
        """
        from rich.text import Text

        width = max(len(column.title) for column in columns)
        for number, row in enumerate(cells):
            if number:
                self.console.print()
            for column, cell in zip(columns, row, strict=True):
                line = Text(f"{column.title:{width}}  ", style="bold")
                line.append(cell, style="not bold")
                self.console.print(line, soft_wrap=True)


def _fit(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> tuple[int, list[int]] | None:
    """(gap, width of each column) of a table that fits the terminal.

    Long values are folded, the widest columns first; a heading breaks between words only. None when the headings do not
    fit.
    """
    from rich.cells import cell_len

    least = [max(map(len, column.title.split())) for column in columns]
    widths = [
        min(width, max(len(column.title), *(cell_len(row[at]) for row in cells)) if cells else len(column.title))
        for at, column in enumerate(columns)
    ]
    gaps = len(columns) - 1
    gap = GAP if sum(widths) + GAP * gaps <= width else NARROW_GAP
    room = width - gap * gaps
    if sum(least) > room:
        return None
    while sum(widths) > room:
        widest = max((at for at in range(len(widths)) if widths[at] > least[at]), key=widths.__getitem__)
        widths[widest] -= 1
    return gap, widths


class Progress:
    """The progress of long work, shown on an otherwise unused terminal."""

    def __init__(self) -> None:
        self.done = 0

    def advance(self, count: int = 1) -> None:
        """Count finished items."""
        self.done += count

    def say_total(self, total: int) -> None:
        """Set the number of items, once it is known."""


class _Bar(Progress):
    def __init__(self, bar: Any, task: Any) -> None:
        super().__init__()
        self._bar = bar
        self._task = task

    def advance(self, count: int = 1) -> None:
        super().advance(count)
        self._bar.advance(self._task, count)

    def say_total(self, total: int) -> None:
        self._bar.update(self._task, total=total)


@contextmanager
def progress(what: str, total: int | None = None, shown: bool = True, sizes: bool = False) -> Iterator[Progress]:
    """Show a bar on stderr while the block runs.

    The bar has count and rate, or with `sizes` bytes in place of a count. `total` None: the amount is unknown. `shown`:
    no other output goes to the terminal meanwhile, neither from this program nor from the other end of a pipe.
    """
    if not shown or not sys.stderr.isatty():
        yield Progress()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        ProgressColumn,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.progress import Progress as Bars
    from rich.text import Text

    def amount(count: float) -> str:
        return size_text(count) if sizes else f"{count:,.0f}"

    class CountColumn(ProgressColumn):
        def render(self, task: Any) -> Text:
            of = "" if task.total is None else f" of {amount(task.total)}"
            return Text(f"{amount(task.completed)}{of}")

    class RateColumn(ProgressColumn):
        def render(self, task: Any) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{size_text(speed) if sizes else _short(speed)}/s", style="cyan")

    columns: list[ProgressColumn] = [TextColumn("{task.description}")]
    columns += [BarColumn(), CountColumn(), RateColumn(), TimeElapsedColumn()]
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        yield _Bar(bars, bars.add_task(what, total=total))


def is_regular_file(stream: Any) -> bool:
    """Whether a stream is a file on disk.

    A terminal is none, and neither is a pipe, whose other end may write to the terminal.
    """
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # closed, or no file at all
        return False


def tell(text: str) -> None:
    """Print a line on stderr when it is a terminal."""
    if sys.stderr.isatty():
        print(fitted(printable(text, one_line=True), sys.stderr), file=sys.stderr)


def counted(count: int) -> str:
    """A number with its noun: 1 record, 2,000 records."""
    return "1 record" if count == 1 else f"{count:,} records"


def size_text(count: float | None) -> str:
    """A size for people: 1.2 MB."""
    if count is None or count < 0:
        return NOTHING
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def time_text(milliseconds: int | None) -> str | None:
    """A time in ms since 1970 as ISO 8601 in UTC.

    None for -1.
    """
    if milliseconds is None or milliseconds < 0:
        return None
    from datetime import UTC, datetime

    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _short(rate: float) -> str:
    for unit in ("", "k", "M"):
        if rate < 1000:
            return f"{rate:.0f}{unit}" if unit == "" else f"{rate:.1f}{unit}"
        rate /= 1000
    return f"{rate:.1f}G"


def _cell_text(value: Any) -> str:
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(map(str, value)) or NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    return NOTHING if value is None or value == "" else str(value)


def _line_text(value: Any) -> str:
    if isinstance(value, (list, tuple, set, frozenset)):
        return printable(",".join(map(str, value)), one_line=True) or NOTHING
    if isinstance(value, bool):
        return str(value).lower()
    return NOTHING if value is None or value == "" else printable(str(value), one_line=True)


def _jsonable(value: Any) -> Any:
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return str(value)
