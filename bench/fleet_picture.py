"""The plot of a fleet: jobs a second by the number of workers, on both ways; for a light and for a dark page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from bench.picture import STYLE

WIDTH, HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 110, 64, 58
STEP = 200  # jobs a second between two lines of the grid
WORDS = "each worker completes a job and claims the next, without a pause; clients, pooler and server on one machine"
LINES = """
  .pooled { fill: none; stroke: #1f6feb; stroke-width: 2 } .grid { stroke: #d1d9e0; stroke-width: 1 }
  .direct { fill: none; stroke: #59636e; stroke-width: 1.5; stroke-dasharray: 5 4 }
  @media (prefers-color-scheme: dark) {
    .pooled { stroke: #4493f8 } .grid { stroke: #3d444d } .direct { stroke: #9198a1 }
  }
"""


def picture(rates: Sequence[tuple[int, bool, float]], machine: str) -> str:
    """`rates`: workers, whether they are behind PgBouncer, and their jobs a second."""
    numbers = sorted({workers for workers, _, _ in rates})
    most = STEP * math.ceil(max(rate for _, _, rate in rates) / STEP)
    span = math.log(numbers[-1] / numbers[0]) or 1.0

    def x(workers: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(workers / numbers[0]) / span

    def y(rate: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * rate / most

    grid = "\n".join(
        f'<path class="grid" d="M{LEFT} {y(rate):.1f}H{WIDTH - RIGHT}"/>'
        f'<text class="quiet" x="{LEFT - 8}" y="{y(rate) + 4:.1f}" text-anchor="end">{rate}</text>'
        for rate in range(0, most + 1, STEP)
    )
    workers_below = "\n".join(
        f'<text class="quiet" x="{x(each):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{each:,}</text>'
        for each in numbers
    )
    lines = []
    for is_pooled, kind, name in ((False, "direct", "direct"), (True, "pooled", "PgBouncer")):
        points = [(x(workers), y(rate)) for workers, pooled, rate in rates if pooled is is_pooled]
        if points:
            path = "L".join(f"{across:.1f} {down:.1f}" for across, down in points)
            lines.append(f'<path class="{kind}" d="M{path}"/>')
            lines.append(f'<text x="{WIDTH - RIGHT + 10}" y="{points[-1][1] + 4:.1f}">{name}</text>')
    drawn = "\n".join(lines)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"
     aria-label="Jobs a second by the number of workers">
<style>{STYLE}{LINES}</style>
<text class="title" x="16" y="26">A fleet on one PostgreSQL: jobs a second by the number of workers</text>
<text class="quiet" x="16" y="45">{WORDS}</text>
{grid}
{workers_below}
{drawn}
<text class="quiet" x="16" y="{HEIGHT - 12}">{escape(machine)}</text>
</svg>
"""
