"""The official Python SDK, 2.x, in its default mode: it probes `server/discover` first."""

from contextlib import asynccontextmanager

from commands import Connected, serve
from mcp import Client
from mcp.client.sse import sse_client


@asynccontextmanager
async def connect(url, on_log, transport):
    server = sse_client(url) if transport == "http-sse" else url
    async with Client(server, logging_callback=on_log) as client:

        def call_tool(name, args, on_progress, timeout):
            return client.call_tool(name, args, timeout, on_progress)

        yield Connected(
            client.server_info.name, client.protocol_version, client.list_tools, call_tool
        )


serve(connect)
