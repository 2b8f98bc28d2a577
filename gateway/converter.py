"""The process that converts: one job a line on stdin, one outcome a line on stdout.

It lives apart from the server because a hostile PDF may crash pdfium or keep it busy forever, and because
pdfium must not be used by two threads at once.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from convertq.gateway.answer import Refusal
from convertq.gateway.convert import json_to_tree, pdf_to_tree, write_tree
from convertq.gateway.mapping import load_mapping

MEMORY_LIMIT_BYTES = 2 * 1024**3  # address space, of which an idle converter maps about a tenth


def main() -> None:
    # Ctrl-C reaches the whole group; only the server decides when a converter ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Left to its default action, SIGALRM ends the process even inside pdfium.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:  # ends with the server, whose end of the pipe closes in any kind of death
        job = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, job["seconds"])
        outcome = run(job)
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout.write(json.dumps(outcome) + "\n")
        sys.stdout.flush()


def run(job: dict[str, Any]) -> dict[str, Any]:
    try:
        mapping = load_mapping(job["mapping"])
        reader = pdf_to_tree if job["input"] == "pdf" else json_to_tree
        tree = reader(Path(job["source"]), mapping)
        write_tree(tree, Path(job["target"]), job["output"], job["pretty"])
    except Refusal as refusal:
        return {"status": refusal.status, "message": refusal.message}
    except MemoryError:
        return {"status": 422, "message": "the document needs more memory than a conversion may use"}
    return {"status": 200}


if __name__ == "__main__":
    main()
