"""Makes docs/demo.svg: a real run of the demo, as a picture of a terminal."""

from __future__ import annotations

import io
import re
import shutil
from pathlib import Path

from convertq.cli.demo import print_shortest, submit_samples
from convertq.cli.demo_view import table, watch
from convertq.embedded.demo_stack import Stack
from convertq.queue.database.database import Database
from rich.console import Console

PICTURE = Path(__file__).parents[1] / "docs" / "demo.svg"


def main() -> None:
    quiet = Console(file=io.StringIO())
    shown = Console(record=True, force_terminal=True, width=100, file=io.StringIO(), highlight=False)
    shown.print("$ make demo\nstarting PostgreSQL, the reference gateway and four workers …")
    stack = Stack()
    with stack.up() as config:
        database = Database.open(config.database, "convertq:demo")
        rows = watch(database, submit_samples(database, config), quiet, timeout=60)
        shown.print(table(rows))
        results = {config.results_dir / f"{row['id']}.xml": row["name"] for row in rows if row["status"] == "complete"}
        print_shortest(shown, results)
    PICTURE.parent.mkdir(exist_ok=True)
    svg = shown.export_svg(title="convertq demo")
    PICTURE.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S), "utf-8")  # no fonts from elsewhere
    shutil.rmtree(stack.home)


if __name__ == "__main__":
    main()
