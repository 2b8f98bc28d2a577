"""Everything that `make bench` measures, each against its target.

    python -m bench [--keep] [SCENE …]

Without arguments all scenes run, and the results are kept: in bench/results, in the generated parts of
docs/benchmarks.md and in docs/bench.svg. With names only those scenes run, and --keep keeps their results. The sizes
that the environment may set are in bench/README.md.
"""

from __future__ import annotations

import argparse

from bench import results
from bench.contender import ROOT
from bench.gateway import null_gateway
from bench.postgres import DurablePostgres
from bench.scenes import SCENES, Run
from docs.generate import generated


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=", ".join(SCENES))
    parser.add_argument("--keep", action="store_true", help="replace the results and docs/benchmarks.md")
    chosen = parser.parse_args()
    if unknown := set(chosen.scenes) - set(SCENES):
        parser.error(f"no such scene: {', '.join(unknown)}; there are {', '.join(SCENES)}")
    keeps = chosen.keep or not chosen.scenes
    with DurablePostgres() as postgres, null_gateway() as gateway:
        run = Run(postgres, gateway, keeps)
        for name in chosen.scenes or SCENES:
            print(f"-- {name}", flush=True)
            text = SCENES[name](run)
            print(f"\n{results.heading(name, run.machine)}\n\n{text}\n", flush=True)
            if keeps:
                results.keep(name, text, run.machine)
                (ROOT / results.DOCUMENT).write_text(generated(results.DOCUMENT))


if __name__ == "__main__":
    main()
