"""Which mapping a submission gets: the one that it names, the default of the table `jobs`, or the first allowed."""

from __future__ import annotations

from convertq.queue.config import Config

#: It is also the default of the column, for programs that insert a row and name no mapping.
DEFAULT_MAPPING = "pt_simon_invoice_v1"


class MappingNotAllowed(Exception):
    def __init__(self, allowed: tuple[str, ...]) -> None:
        super().__init__(f"allowed: {', '.join(allowed)}")
        self.allowed = allowed


def choose_mapping(config: Config, wanted: str | None = None) -> str:
    """Raises MappingNotAllowed."""
    allowed = config.mappings_allowed
    if wanted and wanted not in allowed:
        raise MappingNotAllowed(allowed)
    return wanted or (DEFAULT_MAPPING if DEFAULT_MAPPING in allowed else allowed[0])
