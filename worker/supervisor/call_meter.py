"""What the workers of a host measure of calls to a gateway whose limit is adaptive: numbers in shared memory."""

from __future__ import annotations

import mmap

from convertq.queue.adaptive_limit import SAMPLE_NUMBERS, SIZE_CLASSES, Sample, size_class

_NUMBER_BYTES = 8


class CallMeter:
    """The sums of all calls of one slot so far. Its worker alone writes them, its supervisor reads them. They outlive
    the worker, so that they never decrease."""

    SIZE = SAMPLE_NUMBERS * _NUMBER_BYTES

    def __init__(self, memory: mmap.mmap, offset: int) -> None:
        self._numbers = memoryview(memory)[offset : offset + self.SIZE].cast("d")

    def record_call(self, size: int, seconds: float) -> None:
        """`size` is that of the file that was sent. The seconds are written first: a reader between two of these lines
        counts the call with its next reading, and never one without its time."""
        at = size_class(size)
        self._numbers[2 * SIZE_CLASSES + at] += seconds * seconds
        self._numbers[SIZE_CLASSES + at] += seconds
        self._numbers[at] += 1

    def record_overload(self) -> None:
        self._numbers[SAMPLE_NUMBERS - 1] += 1

    def read(self) -> Sample:
        return Sample.from_row(self._numbers.tolist())
