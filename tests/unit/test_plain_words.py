"""Names, comments and documents use the textbook word for each thing; CONTRIBUTING.md says why.

A pattern writes one letter in brackets, so that this file does not find itself.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
SQL_COLUMNS = 110
FILES = ("*.py", "*.sql", "*.md", "*.js", "*.html", "Makefile", ".ci/run", "man/", "monitoring/", "systemd/")
#: private words, and what to write instead; a word is found in any case, also as a part of a name
WORDS = {
    r"who[e]ver": "anyone who, the session that",
    r"ane[w]": "again",
    r"men[d](s|ed|ing)?": "fix",
    r"dea[r](er)?": "expensive",
    r"for eve[r]": "forever, without limit",
    r"in han[d]": "current, running",
    r"in_han[d]": "current, running",
    r"bur(y|ied|ies)[ _]?(the |its |a )?(server|worker|host)": "mark dead, reap",
    r"look[o]ut": "monitor",
    r"tr[o]ubles? =": "DATABASE_ERRORS",
    r"stra[y](s|ed)?": "orphan file",
    r"mood[y]": "faulty",
    r"imp[a]tient": "with short timeouts",
    r"patie[n](ce|tly)": "timeout, deadline",
    r"bu[r]nt": "lost, used up",
    r"le(t|ts|tting) g[o]": "abandon, release",
    r"g(i|a)v(e|es|en|ing) (it |them |its jobs |jobs )?bac[k]": "requeue",
    r'"""Own[s] ': "(say what the module does)",
}


def tracked(*patterns: str) -> list[Path]:
    """Without git, as in an unpacked archive, there is nothing to compare with."""
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True).stdout
    return [path for name in listed.splitlines() if (path := ROOT / name).exists()]


def lines(path: Path) -> list[tuple[int, str]]:
    return list(enumerate(path.read_text(errors="replace").splitlines(), start=1))


def test_no_word_of_a_private_dialect_is_used() -> None:
    patterns = {re.compile(rf"(?<![a-z]){word}(?![a-z])", re.IGNORECASE): WORDS[word] for word in WORDS}
    any_of_them = re.compile("|".join(WORDS), re.IGNORECASE)  # quick, and finds more
    found = [
        f"{path.relative_to(ROOT)}:{number}: [{match.group()}]: {instead}"
        for path in tracked(*FILES)
        for number, line in lines(path)
        if any_of_them.search(line)
        for pattern, instead in patterns.items()
        if (match := pattern.search(line))
    ]
    assert found == []


def test_no_line_of_sql_is_too_long() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked("*.sql")
        for number, line in lines(path)
        if len(line) > SQL_COLUMNS
    ]
    assert long == []
