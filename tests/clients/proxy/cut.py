"""Where and how a response is cut."""

from dataclasses import dataclass
from enum import Enum

from .http1 import Mark


class Place(Enum):
    BEFORE_HEAD = "before the head"
    AFTER_HEAD = "after the head"
    AFTER_EVENT = "after event"
    INSIDE_EVENT = "inside event"
    INSIDE_CHUNK_HEADER = "inside the chunk header after event"


class How(Enum):
    FIN = "FIN"
    RST = "RST"


@dataclass(frozen=True)
class Cut:
    """One cut of one response, towards the client.

    `event` counts from 1; the priming event is one of them. `discard` whole events more are read
    from the server (so its TCP has them acknowledged) and thrown away before the cut. With
    `server_side_open` the server's connection stays up and is read on, as behind a proxy that
    has not noticed; otherwise it is closed with the client's.
    """

    place: Place
    how: How
    event: int = 0
    discard: int = 0
    server_side_open: bool = False

    def __str__(self) -> str:
        words = [self.how.value, self.place.value]
        if self.event:
            words.append(str(self.event))
        if self.discard:
            words.append(f"having discarded {self.discard} more")
        if self.server_side_open:
            words.append("unknown to the server")
        return " ".join(words)


class Cutter:
    """Decides, mark by mark, how much of the response to forward and when to cut."""

    def __init__(self, cut: Cut) -> None:
        self.cut = cut
        self.in_body = False
        self.events = 0
        self.closed = False  # nothing more is forwarded
        self.due = False  # the connection is to be cut
        self.held = b""  # of the event to be cut inside of: read, not yet forwarded

    @property
    def forwarded_events(self) -> int:
        """How many whole events the client got, once the cut is due."""
        match self.cut.place:
            case Place.BEFORE_HEAD | Place.AFTER_HEAD:
                return 0
            case Place.AFTER_EVENT:
                return self.cut.event
            case Place.INSIDE_EVENT:
                return self.cut.event - 1
            case Place.INSIDE_CHUNK_HEADER:
                return self.events

    def forward(self, data: bytes, marks: list[tuple[int, Mark]]) -> bytes:
        """The part of `data` that the client gets."""
        if self.cut.place is Place.BEFORE_HEAD:
            self.closed = self.due = True
            return b""
        out = bytearray()
        start = 0
        for end, mark in [*marks, (len(data), None)]:
            out += self._take(data[start:end])
            start = end
            if mark is not None:
                out += self._reach(mark)
        return bytes(out)

    def _take(self, part: bytes) -> bytes:
        if self.closed:
            return b""
        if self._holding():
            self.held += part
            return b""
        return part

    def _holding(self) -> bool:
        inside_event = self.cut.place is Place.INSIDE_EVENT
        return inside_event and self.in_body and self.events == self.cut.event - 1

    def _reach(self, mark: Mark) -> bytes:
        if self.due:
            return b""
        cut = self.cut
        if mark is Mark.EVENT:
            self.events += 1
            if cut.place is Place.INSIDE_EVENT and self.events == cut.event:
                self.closed = self.due = True
                return self.held[: len(self.held) // 2]
            if cut.place is Place.AFTER_EVENT and self.events >= cut.event:
                self.closed = True
                self.due = self.events == cut.event + cut.discard
        elif mark is Mark.HEAD:
            self.in_body = True
            self.closed = self.due = cut.place is Place.AFTER_HEAD
        elif mark is Mark.SIZE_BYTE and cut.place is Place.INSIDE_CHUNK_HEADER:
            self.closed = self.due = self.events >= cut.event
        return b""
