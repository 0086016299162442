"""Chat without a server: each user is a peer, a room is a topic, and no message is lost while peers come and go.

Run `python examples/chat.py alice` in one terminal and `python examples/chat.py bob` in another. Each line that you
type is a message. `--replay` replays a real conversation of eight people (data/README.md), each on its own peer.
"""

import asyncio
import gzip
import json
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import quillcast

LOG = Path(__file__).parent / "data" / "chat.jsonl.gz"


async def talk(nick: str, room: str = "chat/lobby") -> None:
    """Print the room's messages, and send each line of standard input."""

    def show(event: quillcast.Event) -> None:
        print(f"{(event.key or b'?').decode()}: {event.payload.decode()}", flush=True)

    async with quillcast.Node() as node:
        await node.subscribe(room, handler=show).started()
        print(f"you are in {room}; Ctrl-D leaves", file=sys.stderr, flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            await node.publish(room, line.strip().encode(), key=nick.encode(), wait="stable")


async def replay(people: int = 8) -> dict[str, list[str]]:
    """Replay the most active people of a real log. Returns the messages that each received, as `nick: text`."""
    said = [json.loads(line) for line in gzip.decompress(LOG.read_bytes()).splitlines()]
    nicks = [nick for nick, _ in Counter(message["nick"] for message in said).most_common(people)]
    heard: dict[str, list[str]] = {nick: [] for nick in nicks}
    async with AsyncExitStack() as stack:
        nodes = {nick: await stack.enter_async_context(quillcast.Node(network="chat-replay")) for nick in nicks}
        rooms = {nick: nodes[nick].subscribe("chat/ubuntu") for nick in nicks}
        await asyncio.gather(*(room.started() for room in rooms.values()))
        lines = [(message["nick"], message["text"]) for message in said if message["nick"] in nodes]
        for nick, text in lines:  # "root": it has its place in the conversation before the next one
            await nodes[nick].publish("chat/ubuntu", text.encode(), key=nick.encode(), wait="root")
        for nick, room in rooms.items():
            while len(heard[nick]) < len(lines):
                event = await anext(room)
                heard[nick].append(f"{(event.key or b'?').decode()}: {event.payload.decode()}")
    return heard


if __name__ == "__main__":
    nick = sys.argv[1] if len(sys.argv) == 2 else sys.exit(__doc__)
    if nick in {"-h", "--help"}:
        print(__doc__)
    elif nick == "--replay":
        print(*(f"{who} heard {len(said)} messages" for who, said in quillcast.run(replay()).items()), sep="\n")
    else:
        quillcast.run(talk(nick))
