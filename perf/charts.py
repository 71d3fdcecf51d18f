"""Bar charts as SVG, without any library; readable on light and dark pages."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

COLOURS = {
    "kafkapy": "#0b7a75",
    "apache-3.9": "#c2803a",
    "apache-4.x": "#8a4f1d",
    "kfake": "#6f7fb6",
    "tansu": "#9a6fb0",
    "limit": "#9aa0a6",
}
_OTHER = "#b05c7a"
_BAR, _GAP, _LABEL, _WIDTH, _PLOT = 13, 10, 320, 900, 470


@dataclass(frozen=True)
class Bar:
    """Median, smallest and largest round of one peer."""

    peer: str
    value: float
    low: float
    high: float


def bars(title: str, groups: list[tuple[str, list[Bar]]], titles: dict[str, str], digits: int = 2) -> str:
    """Horizontal bars, one group for each cell; a thin line spans all rounds."""
    most = max((bar.high for _, group in groups for bar in group), default=0) or 1.0
    scale = _PLOT / most
    peers = list(dict.fromkeys(bar.peer for _, group in groups for bar in group))
    body: list[str] = []
    x = 10.0
    for peer in peers:
        name = titles.get(peer, peer)
        body.append(f'<rect x="{x:.0f}" y="34" width="11" height="11" fill="{COLOURS.get(peer, _OTHER)}"/>')
        body.append(f'<text x="{x + 16:.0f}" y="44">{escape(name)}</text>')
        x += 40 + 7.2 * len(name)
    y = 62.0
    for cell, group in groups:
        height = _BAR * len(group)
        body.append(f'<text x="{_LABEL - 8}" y="{y + height / 2 + 4:.1f}" text-anchor="end">{escape(cell)}</text>')
        for bar in group:
            colour = COLOURS.get(bar.peer, _OTHER)
            width = max(bar.value * scale, 1)
            middle = y + (_BAR - 2) / 2
            body.append(f'<rect x="{_LABEL}" y="{y:.1f}" width="{width:.1f}" height="{_BAR - 2}" fill="{colour}"/>')
            body.append(
                f'<line x1="{_LABEL + bar.low * scale:.1f}" x2="{_LABEL + bar.high * scale:.1f}" '
                f'y1="{middle:.1f}" y2="{middle:.1f}"/>'
            )
            end = _LABEL + max(width, bar.high * scale) + 5
            body.append(f'<text x="{end:.1f}" y="{y + _BAR - 4:.1f}" class="value">{bar.value:,.{digits}f}</text>')
            y += _BAR
        y += _GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y:.0f}" width="{_WIDTH}" height="{y:.0f}" '
        'role="img">\n'
        f"<title>{escape(title)}</title>\n"
        "<style>text{font:12px sans-serif;fill:#222}.value{font-size:10px}.head{font-weight:bold;font-size:14px}"
        "line{stroke:#222;stroke-width:1;opacity:.6}"
        "@media(prefers-color-scheme:dark){text{fill:#ddd}line{stroke:#ddd}}</style>\n"
        f'<text x="10" y="20" class="head">{escape(title)}</text>\n' + "\n".join(body) + "\n</svg>\n"
    )
