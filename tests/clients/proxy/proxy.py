"""A TCP proxy that cuts one response and is otherwise invisible.

Bytes pass unchanged in both directions. The response to the first request that `wanted` accepts
(a `tools/call` POST, unless told otherwise) is cut as the `Cut` says; every connection after it,
and every other one before, is left alone. What went
over each connection is recorded in `exchanges`, so that a test can check the wire itself.
"""

import asyncio
import json
import socket
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from .cut import Cut, Cutter, How
from .http1 import Event, Mark, Request, RequestScanner, Response, ResponseScanner

RECEIVE_BYTES = 65536
# Before an RST the client gets this long to read what was forwarded: an RST may destroy what
# still waits in the receiver's socket or HTTP library, and the test wants to know what was seen.
SECONDS_BEFORE_RST = 0.15


@dataclass
class Exchange:
    """A request and what came back, as far as the proxy saw it."""

    request: Request
    rpc_method: str | None
    response: Response = field(default_factory=Response)
    # How many of `response.events` reached the client; the others were read and thrown away.
    forwarded_events: int | None = None

    @property
    def last_event_id(self) -> str | None:
        return self.request.headers.get("last-event-id")

    @property
    def forwarded(self) -> list[Event]:
        return self.response.events[: self.forwarded_events]


def rpc_method(request: Request) -> str | None:
    """The JSON-RPC method of a POST that carries one message."""
    if request.method != "POST":
        return None
    message = json.loads(request.body)
    return message.get("method") if isinstance(message, dict) else None


def is_call(exchange: Exchange) -> bool:
    return exchange.rpc_method == "tools/call"


def is_get(exchange: Exchange) -> bool:
    return exchange.request.method == "GET"


class CuttingProxy:
    """Listens on a free loopback port for one client; `async with` frees everything."""

    def __init__(
        self,
        upstream_port: int,
        cut: Cut | None,
        wanted: Callable[[Exchange], bool] = is_call,
    ) -> None:
        self.upstream_port = upstream_port
        self.cut = cut
        self.wanted = wanted
        self.cut_exchange: Exchange | None = None  # the one whose response was cut
        self.exchanges: list[Exchange] = []
        self.faults: list[BaseException] = []
        self.tasks: set[asyncio.Task] = set()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.listener.setblocking(False)
        self.port: int = self.listener.getsockname()[1]

    async def __aenter__(self) -> "CuttingProxy":
        asyncio.get_running_loop().add_reader(self.listener, self.accept)
        return self

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self.listener)
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.listener.close()

    def spawn(self, work) -> asyncio.Task:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.finished)
        return task

    def finished(self, task: asyncio.Task) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self.faults.append(fault)

    def accept(self) -> None:
        client, _ = self.listener.accept()
        self.spawn(Connection(self, client).run())

    def claim(self, exchange: Exchange) -> Cutter | None:
        """The cutter for this response if it is the one to be cut."""
        if self.cut is None or self.cut_exchange is not None or not self.wanted(exchange):
            return None
        self.cut_exchange = exchange
        return Cutter(self.cut)


class Connection:
    """One client connection and its own connection to the server."""

    def __init__(self, proxy: CuttingProxy, client: socket.socket) -> None:
        self.proxy = proxy
        self.client = client
        self.server = socket.socket()
        self.pending: deque[Exchange] = deque()
        self.loop = asyncio.get_running_loop()

    async def run(self) -> None:
        for side in (self.client, self.server):
            side.setblocking(False)
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await self.loop.sock_connect(self.server, ("127.0.0.1", self.proxy.upstream_port))
            upward = asyncio.create_task(self.upward())
            try:
                await self.downward(upward)
            finally:
                upward.cancel()
                await asyncio.gather(upward, return_exceptions=True)
        except OSError:
            pass  # a reset or a vanished peer is an end of the connection like any other
        finally:
            self.client.close()
            self.server.close()

    async def upward(self) -> None:
        """Client to server, until the client ends; then the server is told so."""
        scanner = RequestScanner()
        try:
            while data := await self.loop.sock_recv(self.client, RECEIVE_BYTES):
                for request in scanner.feed(data):
                    exchange = Exchange(request, rpc_method(request))
                    self.pending.append(exchange)
                    self.proxy.exchanges.append(exchange)
                await self.loop.sock_sendall(self.server, data)
            self.server.shutdown(socket.SHUT_WR)
        except OSError:
            with suppress(OSError):
                self.server.shutdown(socket.SHUT_RDWR)

    async def downward(self, upward: asyncio.Task) -> None:
        """Server to client, until the server ends or the cut is due."""
        scanner = ResponseScanner()
        cutter: Cutter | None = None
        while data := await self.loop.sock_recv(self.server, RECEIVE_BYTES):
            if cutter is None and self.pending:
                cutter = self.proxy.claim(self.pending[0])
            marks = list(self.observe(scanner, data))
            out = cutter.forward(data, marks) if cutter else data
            await self.loop.sock_sendall(self.client, out)
            if cutter and cutter.due:
                self.proxy.cut_exchange.forwarded_events = cutter.forwarded_events
                await self.sever(upward)
                return
        self.client.shutdown(socket.SHUT_WR)
        await upward

    def observe(self, scanner: ResponseScanner, data: bytes):
        """The marks in `data`; keeps the exchange at the head of the queue up to date."""
        for end, mark in scanner.feed(data):
            if mark is Mark.HEAD and self.pending:
                self.pending[0].response = scanner.response
            elif mark is Mark.END and self.pending and scanner.response.status >= 200:
                self.pending.popleft()
            yield end, mark

    async def sever(self, upward: asyncio.Task) -> None:
        """Cuts the client off, and the server too unless it is not to know."""
        cut = self.proxy.cut
        if cut.how is How.RST:
            await asyncio.sleep(SECONDS_BEFORE_RST)
        upward.cancel()
        await asyncio.gather(upward, return_exceptions=True)
        draining = []
        if cut.how is How.RST:
            reset(self.client)
        else:
            self.client.shutdown(socket.SHUT_WR)
            # Closing with the client's bytes unread would send an RST.
            draining.append(self.drain(self.client))
        if cut.server_side_open:
            draining.append(self.drain(self.server))
        elif cut.how is How.RST:
            reset(self.server)
        else:
            self.server.close()
        await asyncio.gather(*draining)

    async def drain(self, side: socket.socket) -> None:
        while await self.loop.sock_recv(side, RECEIVE_BYTES):
            pass


def reset(side: socket.socket) -> None:
    """Closes with an RST."""
    side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    side.close()
