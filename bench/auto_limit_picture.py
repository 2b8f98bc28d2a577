"""The plot of an adaptive limit over time, beside what the gateway can bear; for a light and for a dark page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bench.picture import STYLE

WIDTH, HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 48, 20, 64, 58
WORDS = "dashed: how many calls the gateway can bear; short dips: the usual latency is being measured"
LINES = """
  .limit { fill: none; stroke: #1f6feb; stroke-width: 2 } .grid { stroke: #d1d9e0; stroke-width: 1 }
  .bears { fill: none; stroke: #59636e; stroke-width: 1.5; stroke-dasharray: 5 4 }
  @media (prefers-color-scheme: dark) {
    .limit { stroke: #4493f8 } .grid { stroke: #3d444d } .bears { stroke: #9198a1 }
  }
"""


def picture(
    seconds: Sequence[float], limits: Sequence[int], changes_at: float, bears: tuple[int, int], machine: str
) -> str:
    """`bears`: how many calls the gateway can bear, before and after `changes_at`."""
    end, most = seconds[-1], 4 * (max(*limits, *bears) // 4 + 1)

    def x(second: float) -> str:
        return f"{LEFT + (WIDTH - LEFT - RIGHT) * second / end:.1f}"

    def y(calls: float) -> str:
        return f"{HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * calls / most:.1f}"

    grid = "\n".join(
        f'<path class="grid" d="M{LEFT} {y(calls)}H{WIDTH - RIGHT}"/>'
        f'<text class="quiet" x="{LEFT - 8}" y="{float(y(calls)) + 4:.1f}" text-anchor="end">{calls}</text>'
        for calls in range(0, most + 1, 4)
    )
    times = "\n".join(
        f'<text class="quiet" x="{x(second)}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{second} s</text>'
        for second in range(0, int(end) + 1, 20)
    )
    steps = "".join(f"H{x(second)}V{y(limit)}" for second, limit in zip(seconds, limits, strict=True))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"
     aria-label="The limit over time">
<style>{STYLE}{LINES}</style>
<text class="title" x="16" y="26">max_calls = "auto": the limit over time</text>
<text class="quiet" x="16" y="45">{WORDS}</text>
{grid}
{times}
<path class="bears" d="M{LEFT} {y(bears[0])}H{x(changes_at)}V{y(bears[1])}H{WIDTH - RIGHT}"/>
<path class="limit" d="M{LEFT} {y(limits[0])}{steps}"/>
<text class="quiet" x="16" y="{HEIGHT - 12}">{escape(machine)}</text>
</svg>
"""
