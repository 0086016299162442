"""A port that is forwarded: what comes to one address goes on to another, as a router with one public address does it.

`python -m tests.live.relay HOST:PORT HOST:PORT` says so when it listens at the first, and goes on until it is ended.
"""

import asyncio
import sys

from quillcast.live.transport import addresses


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while part := await reader.read(1 << 16):
            writer.write(part)
            await writer.drain()
    except ConnectionError:
        pass  # the other direction ends with it
    finally:
        writer.close()


async def forward(here: str, there: str) -> None:
    async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inside_reader, inside_writer = await asyncio.open_connection(*addresses.parse(there))
        await asyncio.gather(copy(reader, inside_writer), copy(inside_reader, writer))

    server = await asyncio.start_server(taken, *addresses.parse(here))
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(forward(*sys.argv[1:]))
