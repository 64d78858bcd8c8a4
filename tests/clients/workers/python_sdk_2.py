"""The official Python SDK, 2.x, in its default mode: it probes `server/discover` first."""

from contextlib import asynccontextmanager

from commands import Connected, serve
from mcp import Client


@asynccontextmanager
async def connect(url, on_log):
    async with Client(url, logging_callback=on_log) as client:

        def call_tool(name, args, on_progress, timeout):
            return client.call_tool(name, args, timeout, on_progress)

        yield Connected(
            client.server_info.name, client.protocol_version, client.list_tools, call_tool
        )


serve(connect)
