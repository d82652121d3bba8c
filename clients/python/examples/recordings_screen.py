"""The output of `recordings.py`: in a terminal, a picture that is redrawn; elsewhere, one line per second. At the
end, a table.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Sequence

from dunlin.tasks import TenantInfo

COLOURS = (36, 32, 33, 35)
BLOCKS = " ▏▎▍▌▋▊▉█"
TOLD_MAX = 5


class Screen:
    """The output of one run. A `terse` screen prints only events, without times."""

    def __init__(self, tenants: Sequence[str], least: int, most: int, *, terse: bool = False) -> None:
        self.terse = terse
        self.tenants = tenants
        self.bounds = least, most
        self.live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self.coloured = self.live and not os.environ.get("NO_COLOR")
        self.began = time.monotonic()
        self.told: deque[str] = deque(maxlen=TOLD_MAX)
        self.drawn = 0
        self.shown = ""
        self.shown_at = -1.0
        self.scale = 1

    def tell(self, what: str) -> None:
        """Prints an event."""
        self.told.append(what if self.terse else f"{self.seconds():5.1f} s  {what}")
        if not self.live:
            print(self.told[-1], flush=True)

    def seconds(self) -> float:
        return time.monotonic() - self.began

    def draw(self, phase: str, workers: int, processes: int, tenants: dict[str, TenantInfo]) -> None:
        """Draws the current status."""
        if self.live:
            self._draw(phase, workers, processes, tenants)
        elif not self.terse and self.seconds() - self.shown_at >= 1.0:
            rows = (tenants[name] for name in self.tenants if name in tenants)
            waiting = "  ".join(f"{row.name} {row.queued:>4} wait {row.completed:>5} done" for row in rows)
            line = f"{workers:>2} workers  {waiting}  {phase}"
            if line != self.shown:
                self.shown, self.shown_at = line, self.seconds()
                print(f"{self.shown_at:5.1f} s  {line}", flush=True)

    def _draw(self, phase: str, workers: int, processes: int, tenants: dict[str, TenantInfo]) -> None:
        width = shutil.get_terminal_size().columns
        least, most = self.bounds
        dots = "●" * workers + "○" * max(most - workers, 0)
        lines = [
            f"{self._paint('1', 'dunlin: tasks')}  {self.seconds():5.1f} s  {phase}",
            "",
            f"workers   {self._paint('1', dots)}  {workers} of {least}..{most}, {processes} processes",
            "",
            f"{'tenant':<8}{'waiting':>8}{'running':>9}{'done':>8}{'cpu':>9}",
        ]
        self.scale = max(self.scale, *(row.queued for row in tenants.values()), 1)
        for name, colour in zip(self.tenants, COLOURS, strict=False):
            row = tenants.get(name, TenantInfo(name, 0, 0, 0, 0, 0, 0.0))
            numbers = f"{row.queued:>8,}{row.running:>9}{row.completed:>8,}{row.cpu:>7.1f} s"
            bar = _bar(row.queued / self.scale, max(min(width - 46, 60), 8))
            lines.append(f"{self._paint(str(colour), f'{name:<8}')}{numbers}  {self._paint(str(colour), bar)}")
        # A line that is wider than the terminal would wrap, and the next picture would be drawn at the wrong place.
        lines += ["", *(self._paint("2", line[: width - 1]) for line in self.told)]
        # Draws over the last picture: moves up, clears each line to its end, and clears all lines below.
        up = f"\x1b[{self.drawn}A" if self.drawn else ""
        sys.stdout.write(up + "".join(f"\r{line}\x1b[K\n" for line in lines) + "\x1b[J")
        sys.stdout.flush()
        self.drawn = len(lines)

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.coloured else text

    def close(self, heads: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[str]) -> None:
        """Prints the table at the end, with a summary."""
        widths = [max(len(row[at]) for row in (heads, *rows)) for at in range(len(heads))]
        print()
        for number, row in enumerate((heads, *rows)):
            cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
            line = "  ".join(cells)
            print(self._paint("1", line) if number == 0 else line)
        print()
        for line in words:
            print(line)
        sys.stdout.flush()


def _bar(share: float, width: int) -> str:
    eighths = round(share * width * 8)
    if share > 0:
        eighths = max(eighths, 1)
    return BLOCKS[8] * (eighths // 8) + (BLOCKS[eighths % 8] if eighths % 8 else "")
