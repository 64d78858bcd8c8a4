"""The cutting proxy itself: it forwards exact bytes, and each cut is where its name says.

Against a server of fixed bytes, chunked in several ways and sent in pieces of several sizes, the
forwarded bytes are compared with a prefix found here by searching the text.
"""

import asyncio
from contextlib import suppress
from functools import partial

from harness.checks import Checks, same
from proxy.cut import Cut, How, Place
from proxy.proxy import CuttingProxy

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
BLOCKS = [b'id: t.%d\ndata: {"n":%d}\n\n' % (number, number) for number in range(12)]
NOISE = b": keep-alive\n\n"  # no event, so no boundary
REQUEST = (
    b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 23\r\n\r\n" + b'{"method":"tools/call"}'
)
PING = REQUEST.replace(b"tools/call", b"ping/12345")


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


def one_chunk_per_event() -> bytes:
    return HEAD + b"".join(chunk(block) + chunk(NOISE) for block in BLOCKS) + chunk(b"")


def one_chunk_for_all() -> bytes:
    return HEAD + chunk(NOISE.join(BLOCKS)) + chunk(b"")


def chunks_of_7_bytes() -> bytes:
    body = b"".join(BLOCKS)
    parts = [body[at : at + 7] for at in range(0, len(body), 7)]
    return HEAD + b"".join(chunk(part) for part in parts) + chunk(b"")


async def forwarded(response: bytes, step: int, cut: Cut | None, request: bytes) -> bytes:
    """What a client gets of `response`, written by the server `step` bytes at a time."""
    asked = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set_result(await reader.readexactly(len(request)))
        with suppress(ConnectionError):  # the proxy goes when it has cut
            for at in range(0, len(response), step):
                writer.write(response[at : at + step])
                await writer.drain()
                await asyncio.sleep(0)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, CuttingProxy(port, cut) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(request)
        received = bytearray()
        how = How.FIN
        try:
            while data := await reader.read(65536):
                received += data
        except ConnectionResetError:
            how = How.RST
        writer.close()
        same("request at the server", await asked, request)
        same("faults", proxy.faults, [])
    if cut:
        same("how the connection ended", how, cut.how)
    return bytes(received)


async def passes_untouched(response: bytes, step: int) -> None:
    same("bytes", await forwarded(response, step, None, REQUEST), response)
    spared = Cut(Place.BEFORE_HEAD, How.FIN)
    same("bytes of another request", await forwarded(response, step, spared, PING), response)


async def cuts_where_it_says(cut: Cut, step: int) -> None:
    response = one_chunk_per_event()
    got = await forwarded(response, step, cut, REQUEST)
    same("is a prefix", response[: len(got)] == got, True)
    same("whole events", got.count(b"}\n\n"), whole_events(cut))
    block = BLOCKS[cut.event - 1]
    match cut.place:
        case Place.BEFORE_HEAD:
            same("bytes", got, b"")
        case Place.AFTER_HEAD:
            same("bytes", got, HEAD)
        case Place.AFTER_EVENT:
            same("ends with the event", got.endswith(block), True)
        case Place.INSIDE_EVENT:
            end = response.index(block) + len(block)
            before = 0 if cut.event == 1 else response.index(BLOCKS[cut.event - 2])
            same("is inside", before < len(got) < end, True)
        case Place.INSIDE_CHUNK_HEADER:
            tail = block + b"\r\n" + (b"%x" % len(NOISE))[:1]
            same("ends in the size line", got.endswith(tail), True)


def whole_events(cut: Cut) -> int:
    if cut.place is Place.INSIDE_EVENT:
        return cut.event - 1
    return cut.event


async def counts_events_in_any_chunking(response: bytes, step: int) -> None:
    got = await forwarded(response, step, Cut(Place.AFTER_EVENT, How.FIN, 5, 3), REQUEST)
    same("is a prefix", response[: len(got)] == got, True)
    same("events", got.count(b"}"), 5)


async def run(checks: Checks) -> None:
    prefix = "proxy"
    for chunking in (one_chunk_per_event, one_chunk_for_all, chunks_of_7_bytes):
        for step in (1, 50, 1 << 20):
            name = f"{prefix}/{chunking.__name__}/in pieces of {step}"
            body = partial(passes_untouched, chunking(), step)
            await checks.run(f"{name}/passes_untouched", body)
            body = partial(counts_events_in_any_chunking, chunking(), step)
            await checks.run(f"{name}/counts_events", body)
    for how in How:
        for step in (1, 1 << 20):
            for cut in (
                Cut(Place.BEFORE_HEAD, how),
                Cut(Place.AFTER_HEAD, how),
                *(Cut(place, how, event) for place in list(Place)[2:] for event in (1, 5, 12)),
                Cut(Place.AFTER_EVENT, how, 4, 5),
            ):
                body = partial(cuts_where_it_says, cut, step)
                await checks.run(f"{prefix}/in pieces of {step}/{cut}", body)
