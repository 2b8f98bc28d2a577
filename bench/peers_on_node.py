"""The peers on Node: graphile-worker and pg-boss, from npm, two processes each."""

from __future__ import annotations

from bench.contender import ROOT, Place, count, count_uploads
from bench.peers_on_python import FILE, NO_FENCE, PROCESSES, Peer

MODULES = ROOT / "bench" / ".peers" / "node" / "node_modules"
NODE = MODULES / ".bin" / "node"
AHEAD = 50
COMPLETE_DELAY_MS = 250


class NodePeer(Peer):
    extra: dict[str, str] = {}  # noqa: RUF012

    def missing(self) -> str:
        return "" if NODE.exists() else "npm was not there when `make bench-peers` ran (Debian: apt-get install npm)"

    def command(self, verb: str) -> list[str]:
        return [str(NODE), str(ROOT / "bench" / "peers" / "node" / "main.cjs"), self.module, verb]

    def commands(self, workers: int) -> list[list[str]]:
        return [self.command("work")] * PROCESSES

    def settings(self, place: Place, workers: int) -> dict[str, str]:
        return {"NODE_PATH": str(MODULES), "CONCURRENCY": str(max(1, workers // PROCESSES)), **self.extra}


class GraphileWorker(NodePeer):
    name, module = "graphile-worker", "graphile"
    lacks = f"{NO_FENCE}. A lost worker's job comes back after four hours. A job that is done leaves no record."

    def completed(self, place: Place) -> int:
        """It deletes the row of a job that is complete."""
        return count_uploads(place) - count(place, b"SELECT count(*) FROM graphile_worker._private_jobs")


class BatchedGraphileWorker(GraphileWorker):
    name = f"graphile-worker (batches of {AHEAD})"
    lacks = f"{GraphileWorker.lacks} Up to {AHEAD} jobs are claimed ahead, and marked {COMPLETE_DELAY_MS} ms late."
    extra = {"LOCAL_QUEUE": str(AHEAD), "COMPLETE_DELAY_MS": str(COMPLETE_DELAY_MS)}  # noqa: RUF012
    fewest_jobs = 4 * PROCESSES * AHEAD


class PgBoss(NodePeer):
    name, module = f"pg-boss (batches of {AHEAD})", "pgboss"
    lacks = f"{FILE}. {AHEAD} jobs are claimed ahead and complete together: a crash repeats up to {AHEAD}."
    extra = {"BATCH_SIZE": str(AHEAD)}  # noqa: RUF012
    fewest_jobs = 4 * PROCESSES * AHEAD

    def completed(self, place: Place) -> int:
        return count(place, b"SELECT count(*) FROM pgboss.job WHERE state = 'completed'")


PEERS: tuple[NodePeer, ...] = (GraphileWorker(), BatchedGraphileWorker(), PgBoss())
