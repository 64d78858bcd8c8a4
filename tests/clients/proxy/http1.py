"""Finds places in a stream of HTTP/1.1 bytes; never changes or holds one.

Pure: bytes in, marks out. Knows just what the cutting proxy must know: where requests end and
what they ask, and in responses where the head ends, where a chunk-size line begins and where
each server-sent event ends.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto


class Mark(Enum):
    """What the byte just scanned completed."""

    HEAD = auto()  # the blank line after the response head
    SIZE_BYTE = auto()  # the first byte of a chunk-size line
    EVENT = auto()  # the blank line after a server-sent event
    END = auto()  # the response


@dataclass
class Request:
    method: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Event:
    """One block of an event stream that carried at least an id or data."""

    id: str | None
    data: str | None


@dataclass
class Response:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)


def parse_head(head: bytes) -> tuple[list[str], dict[str, str]]:
    """The words of the first line, and the fields by lower-case name."""
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    fields = (line.partition(":") for line in lines)
    return first.split(" ", 2), {name.lower(): value.strip() for name, _, value in fields}


class RequestScanner:
    """Cuts what a client sends into requests (the clients send sized or chunked bodies)."""

    def __init__(self) -> None:
        self.buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Request]:
        self.buffer += data
        while (request := self._next()) is not None:
            yield request

    def _next(self) -> Request | None:
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return None
        (method, *_), headers = parse_head(bytes(self.buffer[: end + 4]))
        body = end + 4
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._chunked(method, headers, body)
        size = int(headers.get("content-length", "0"))
        if len(self.buffer) < body + size:
            return None
        return self._take(method, headers, bytes(self.buffer[body : body + size]), body + size)

    def _chunked(self, method: str, headers: dict[str, str], at: int) -> Request | None:
        content = bytearray()
        while (line := self.buffer.find(b"\r\n", at)) >= 0:
            size = int(self.buffer[at:line].split(b";")[0], 16)
            at = line + 2 + size + 2
            if len(self.buffer) < at:
                return None
            if size == 0:
                return self._take(method, headers, bytes(content), at)
            content += self.buffer[line + 2 : line + 2 + size]
        return None

    def _take(self, method: str, headers: dict[str, str], body: bytes, length: int) -> Request:
        del self.buffer[:length]
        return Request(method, headers, body)


class ResponseScanner:
    """Marks places in what a server sends; `response` is the one being scanned."""

    def __init__(self) -> None:
        self.response = Response()
        self._machine = self._responses()
        next(self._machine)

    def feed(self, data: bytes) -> Iterator[tuple[int, Mark]]:
        """Each mark with the length of `data` up to and including the byte that completed it."""
        for index, byte in enumerate(data):
            for mark in self._machine.send(byte):
                yield index + 1, mark

    # A machine takes one byte at each `yield` and gives the marks that the byte before completed.
    Machine = Generator[tuple[Mark, ...], int, None]

    def _responses(self) -> Machine:
        done: tuple[Mark, ...] = ()
        while True:
            head = bytearray()
            head.append((yield done))
            self.response = Response()
            while not head.endswith(b"\r\n\r\n"):
                head.append((yield ()))
            words, self.response.headers = parse_head(bytes(head))
            self.response.status = int(words[1])
            done = yield from self._body()

    def _body(self) -> Generator[tuple[Mark, ...], int, tuple[Mark, ...]]:
        headers = self.response.headers
        bodiless = self.response.status < 200 or self.response.status in (204, 304)
        if headers.get("transfer-encoding", "").lower() == "chunked" and not bodiless:
            yield from self._chunks()
            return (Mark.END,)
        size = 0 if bodiless else int(headers.get("content-length", "0"))
        done: tuple[Mark, ...] = (Mark.HEAD,)
        for _ in range(size):
            yield done
            done = ()
        return (*done, Mark.END)

    def _chunks(self) -> Machine:
        """Ends with the machine waiting for nothing: the caller owns the last byte's mark."""
        done: tuple[Mark, ...] = (Mark.HEAD,)
        block = bytearray()
        while True:
            line = bytearray()
            line.append((yield done))
            line.append((yield (Mark.SIZE_BYTE,)))
            while not line.endswith(b"\r\n"):
                line.append((yield ()))
            size = int(bytes(line).split(b";")[0], 16)
            done = ()
            for _ in range(size):
                block.append((yield done))
                done = self._event(block)
            yield done
            yield ()
            done = ()
            if size == 0:
                return

    def _event(self, block: bytearray) -> tuple[Mark, ...]:
        if not block.endswith(b"\n\n") and not block.endswith(b"\r\n\r\n"):
            return ()
        fields = (line.rstrip("\r").partition(":") for line in block.decode().split("\n"))
        values = {name: value.removeprefix(" ") for name, _, value in fields}
        block.clear()
        if "id" not in values and "data" not in values:
            return ()
        self.response.events.append(Event(values.get("id"), values.get("data")))
        return (Mark.EVENT,)
