"""What schemathesis cannot guess from the contract: what a PDF is, and the ids of jobs that are there."""

from __future__ import annotations

import os
from typing import Any

import schemathesis
from hypothesis import strategies

#: jobs of the session that it works with, and of another
JOBS = os.environ.get("CONTRACT_JOBS", "").split()

schemathesis.openapi.media_type(
    "application/pdf", strategies.binary(max_size=64).map(lambda rest: b"%PDF-1.7\n" + rest)
)


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Two ids of three become one of ours: else nearly every request would end at the first lookup."""
    job_id = str((path_parameters or {}).get("job_id", ""))
    if path_parameters and JOBS and len(job_id) == 36 and (choice := sum(job_id.encode())) % 3:
        return {**path_parameters, "job_id": JOBS[choice % len(JOBS)]}
    return path_parameters
