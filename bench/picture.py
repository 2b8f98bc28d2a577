"""The picture for the README: jobs a second by contender, as bars, readable on a light and on a dark page."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

WIDTH, LEFT, RIGHT = 760, 210, 90
TOP, STEP, THICK = 64, 38, 22
WORDS = "20 KB PDF up, 2 KB XML down, kept with fsync; medians, lines are least to most; dashed: nothing to run"
#: nobody would run them: what any queue is measured against
FLOORS = ("bare loop", "bare loop with urllib3", "least queue")
STYLE = """
  text { font: 14px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
  .title { font-size: 16px; font-weight: 600 } .quiet { fill: #59636e; font-size: 12px }
  .number { font-weight: 600; font-variant-numeric: tabular-nums } .range { stroke: #59636e; stroke-width: 1.5 }
  .ours { fill: #1f6feb } .theirs { fill: #afb8c1 } .floor { fill: none; stroke: #59636e; stroke-dasharray: 4 3 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .quiet { fill: #9198a1 } .range, .floor { stroke: #9198a1 }
    .ours { fill: #4493f8 } .theirs { fill: #57606a }
  }
"""


def picture(rates: Mapping[str, tuple[float, float, float]], machine: str) -> str:
    """`rates`: median, least and most by contender."""
    scale = (WIDTH - LEFT - RIGHT) / max(most for _, _, most in rates.values())
    ordered = sorted(rates.items(), key=lambda one: -one[1][0])
    bars = "\n".join(_bar(TOP + number * STEP, name, found, scale) for number, (name, found) in enumerate(ordered))
    height = TOP + len(rates) * STEP + 34
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"
     aria-label="Jobs a second by contender">
<style>{STYLE}</style>
<text class="title" x="16" y="26">Jobs a second, four workers, a gateway that answers at once</text>
<text class="quiet" x="16" y="45">{WORDS}</text>
{bars}
<text class="quiet" x="16" y="{height - 12}">{escape(machine)}</text>
</svg>
"""


def _bar(top: int, name: str, found: tuple[float, float, float], scale: float) -> str:
    middle, least, most = found
    kind = "ours" if name == "convertq" else "floor" if name in FLOORS else "theirs"
    base = top + THICK - 6
    line = top + THICK / 2
    return (
        f'<text x="{LEFT - 12}" y="{base}" text-anchor="end">{escape(name)}</text>'
        f'<rect class="{kind}" x="{LEFT}" y="{top}" width="{middle * scale:.1f}" height="{THICK}" rx="3"/>'
        f'<path class="range" d="M{LEFT + least * scale:.1f} {line}H{LEFT + most * scale:.1f}"/>'
        f'<text class="number" x="{LEFT + most * scale + 10:.1f}" y="{base}">{middle:.0f}</text>'
    )
