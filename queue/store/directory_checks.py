"""What `convertq doctor` checks of the two directories."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from convertq.queue.doctor.finding import CheckContext, Finding, bad, ok, warn

BYTES_PER_MB = 1024 * 1024
FEW_INODES = 1000


def check_directory(variable: str, path: Path) -> Finding:
    try:
        is_directory = stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        remedy = f"mkdir -p {path} (or convertq doctor --fix)"
        return bad("directories", f"{variable}: {path} is not there", remedy, _make_directories)
    except OSError as error:
        what = f"{variable}: {path} cannot be seen: {(error.strerror or str(error)).lower()}"
        return bad("directories", what, f"let user {os.geteuid()} enter the directories above it")
    if not is_directory:
        return bad("directories", f"{variable}: {path} is not a directory", f"name a directory in {variable}")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return bad("directories", f"{variable}: {path} is not writable here", f"chown {os.geteuid()} {path}")
    return ok("directories", f"{variable}: {path} is writable")


def _make_directories(context: CheckContext) -> str:
    context.store.make_ready()
    return "made the directory"


def check_space(results: Path, wanted_mb: int) -> Finding:
    try:
        space = os.statvfs(results)
    except OSError as error:
        return bad("disk", f"RESULTS_DIR: {(error.strerror or '').lower()}", "see directories")
    free_mb = space.f_bavail * space.f_frsize // BYTES_PER_MB
    summary = f"{free_mb} MB free for results, {wanted_mb} MB wanted"
    if free_mb < wanted_mb:
        return bad("disk", f"{summary}: this host claims nothing", "make room, or lower RESULTS_MIN_FREE_MB")
    if space.f_files and not space.f_favail:
        return bad("disk", "no file can be made: the file system has no inode left", "remove files: convertq cleanup")
    if space.f_files and space.f_favail < FEW_INODES:
        return warn(
            "disk", f"{summary}, but room for only {space.f_favail} more files", "remove files: convertq cleanup"
        )
    if free_mb < 2 * wanted_mb:
        return warn("disk", summary, "make room before this host stops claiming: convertq cleanup")
    return ok("disk", summary)
