"""The official Python SDK, 1.x."""

from contextlib import asynccontextmanager
from datetime import timedelta

from commands import Connected, serve
from mcp import ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client


@asynccontextmanager
async def connect(url, on_log, transport):
    streams = sse_client(url) if transport == "http-sse" else streamable_http_client(url)
    async with streams as (read, write, *_):
        async with ClientSession(read, write, logging_callback=on_log) as session:
            hello = await session.initialize()

            def call_tool(name, args, on_progress, timeout):
                return session.call_tool(name, args, timedelta(seconds=timeout), on_progress)

            yield Connected(
                hello.serverInfo.name, hello.protocolVersion, session.list_tools, call_tool
            )


serve(connect)
