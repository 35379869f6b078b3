"""How strongly programs are confined. A level is measured (see `probes`), never claimed."""

from __future__ import annotations

from enum import StrEnum


class Level(StrEnum):
    """From weakest to strongest."""

    NONE = "none"
    """Some limit on time, memory, processes or output did not hold."""
    LIMITS = "limits"
    """Limits hold; files, network or other processes were reached."""
    CONFINED = "confined"
    """No probe reached anything."""
    NAMESPACES = "namespaces"
    """Confined twice: the program also has process, network, mount and IPC namespaces of its own."""

    def reaches(self, least: Level) -> bool:
        """Whether this level is at least `least`."""
        order = list(Level)
        return order.index(self) >= order.index(least)
