"""`convertq worker run` whose batches may take long: they have eight jobs on the slowest machine too."""

from __future__ import annotations

import os

from convertq.cli.main import main
from convertq.worker.loop import batch, batch_size, claiming

batch.SETTLE_WITHIN_SECONDS = float(os.environ["TEST_SETTLE_WITHIN_SECONDS"])
batch_size.EXPECTED_SECONDS = 1000.0
batch_size.DEEP_QUEUE_JOBS = claiming.DEEP_QUEUE_JOBS = 1  # type: ignore[attr-defined]

if __name__ == "__main__":
    main()
