"""A mesh between gateways: a proxy of HTTP that hands a request on, and may answer something of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

CUT = 0
"""The answer that is none: the connection ends."""


class Mesh:
    """A proxy from `url` to `target`. It forwards the next request to a path in `answers`, too, but answers
    it with the status given there.
    """

    def __init__(self) -> None:
        self.url = self.target = ""
        self.answers: dict[str, int] = {}
        self.asked: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() != "host"}
        self.asked.append(request.path)
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(
                request.method, self.target + request.raw_path, headers=headers, data=await request.read()
            ) as answer,
        ):
            body = await answer.read()
        own = self.answers.pop(request.path, None)
        if own == CUT:
            assert request.transport is not None
            request.transport.abort()
        if own is not None:
            return web.Response(status=own or 504, text="upstream request timeout")
        kept = {name: value for name, value in answer.headers.items() if name.lower() != "content-length"}
        return web.Response(status=answer.status, headers=kept, body=body)


@asynccontextmanager
async def meshed() -> AsyncIterator[Mesh]:
    """A mesh that answers; its `target` is set by the caller."""
    mesh = Mesh()
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{path:.*}", mesh.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    mesh.url = f"http://{host}:{port}"
    try:
        yield mesh
    finally:
        await runner.cleanup()
