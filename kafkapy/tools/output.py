"""What commands print: tables on a terminal, tab-separated lines where stdout is piped, JSON where that is asked.

rich is imported only for a terminal, so that a command in a pipe starts fast.
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
    """One column: the key of its value in each row, its heading on a terminal, and how it looks there.

    A `quiet` one (long ids that matter to few) is left out on a terminal narrower than WIDE characters.
    """

    key: str
    heading: str = ""
    right: bool = False
    style: str | None = None
    quiet: bool = False

    @property
    def title(self) -> str:
        """The heading, which is the key in words where none was given."""
        return self.heading or self.key.replace("_", " ")


WIDE = 120
GAP = 3
NARROW_GAP = 2
"""Characters between two columns, and where the headings have no room for that."""


class Output:
    """Where a command's results go. `console` is given by tests, and made from stdout otherwise."""

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
        """A table: JSON is an array of the rows with all their keys; lines begin with one that names the columns.

        `empty` is what a person reads in place of a table without rows: that there is nothing, and what to do next.
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
        """A sentence for a person; nothing in JSON."""
        if self.terminal:
            self.console.print(
                fitted(printable(text), self.console.file), style=style, markup=False, highlight=False, soft_wrap=True
            )
        elif not self.as_json:
            print(text)

    def heading(self, text: str, *details: str) -> None:
        """What the next table is about, on a terminal only; a blank line sets it off from the table before."""
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
        """Rows one below the other, a line per column: for a terminal that has no room for the headings."""
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
    """(gap, width of each column) of a table that is no wider than the terminal; None where there is no room.

    Long values are folded, the widest columns first; a heading breaks between words only.
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
    """How far long work is: counted, and shown where stderr is a terminal that nothing else is written to."""

    def __init__(self) -> None:
        self.done = 0

    def advance(self, count: int = 1) -> None:
        """So many more are done."""
        self.done += count

    def say_total(self, total: int) -> None:
        """How many there will be, once that is known."""


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
def progress(what: str, total: int | None = None, shown: bool = True) -> Iterator[Progress]:
    """A bar with count and rate on stderr while the block runs; `total` None: it is not known how much there is.

    `shown`: that nothing else is written to the terminal meanwhile, neither by this program nor at the other end of a
    pipe.
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

    class CountColumn(ProgressColumn):
        def render(self, task: Any) -> Text:
            of = "" if task.total is None else f" of {task.total:,.0f}"
            return Text(f"{task.completed:,.0f}{of}")

    class RateColumn(ProgressColumn):
        def render(self, task: Any) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{_short(speed)}/s", style="cyan")

    columns: list[ProgressColumn] = [TextColumn("{task.description}")]
    columns += [BarColumn(), CountColumn(), RateColumn(), TimeElapsedColumn()]
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        yield _Bar(bars, bars.add_task(what, total=total))


def is_regular_file(stream: Any) -> bool:
    """Whether a stream is a file on disk, and neither a terminal nor a pipe, whose other end may have the terminal."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # closed, or no file at all
        return False


def tell(text: str) -> None:
    """A line on stderr for the person at the terminal; nothing where stderr is none."""
    if sys.stderr.isatty():
        print(fitted(printable(text, one_line=True), sys.stderr), file=sys.stderr)


def counted(count: int) -> str:
    """1 record, 2,000 records."""
    return "1 record" if count == 1 else f"{count:,} records"


def size_text(count: float | None) -> str:
    """Bytes for people: 1.2 MB."""
    if count is None or count < 0:
        return NOTHING
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def time_text(milliseconds: int | None) -> str | None:
    """A time in ms since 1970 as ISO 8601 in UTC; None where there is none (-1)."""
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
        return ",".join(map(str, value)) or NOTHING
    if isinstance(value, bool):
        return str(value).lower()
    return NOTHING if value is None or value == "" else str(value).replace("\t", " ").replace("\n", " ")


def _jsonable(value: Any) -> Any:
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return str(value)
