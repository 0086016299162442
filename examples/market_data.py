"""Market data: a feed with a topic per symbol, and desks that each follow some of them.

The ticks are real data: edits of Wikipedia stand in for trades (data/README.md). The example uses the blocking API, as
in a notebook. Run it: python examples/market_data.py
"""

import gzip
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from quillcast import BlockingNode, BlockingSubscription

FEED = Path(__file__).parent / "data" / "ticks.jsonl.gz"
DESKS = {"west": ["en.wikipedia", "es.wikipedia", "de.wikipedia"], "east": ["vi.wikipedia", "ja.wikipedia"]}
NETWORK = "market-example"


def ticks() -> Iterator[dict[str, Any]]:
    """The feed in order of time: time, symbol and volume."""
    return map(json.loads, gzip.decompress(FEED.read_bytes()).splitlines())


def summed_up(subscription: BlockingSubscription) -> dict[str, Any]:
    """Summarize a symbol until the market closed: ticks, volume, and the time of the last tick."""
    seen = []
    for event in subscription:
        if event.attributes:
            break
        seen.append(json.loads(event.payload))
    return {"ticks": len(seen), "volume": sum(tick["added"] for tick in seen), "last": seen[-1]["time"]}


def run() -> dict[str, dict[str, dict[str, Any]]]:
    """Publish the feed. Returns what each desk received, by symbol."""
    with ExitStack() as stack:
        feed = stack.enter_context(BlockingNode(network=NETWORK))
        following: dict[str, dict[str, BlockingSubscription]] = {}
        for desk, symbols in DESKS.items():
            node = stack.enter_context(BlockingNode(network=NETWORK))
            following[desk] = {symbol: node.subscribe(f"market/{symbol}") for symbol in symbols}
        for tick in ticks():
            feed.publish(f"market/{tick['symbol']}", json.dumps(tick).encode(), key=tick["symbol"].encode())
        for symbol in {symbol for symbols in DESKS.values() for symbol in symbols}:
            feed.publish(f"market/{symbol}", b"", attributes={"closed": True}, wait="stable")
        return {desk: {symbol: summed_up(one) for symbol, one in ones.items()} for desk, ones in following.items()}


if __name__ == "__main__":
    for name, symbols in run().items():
        for symbol, seen in symbols.items():
            print(f"{name}: {symbol:14} {seen['ticks']:5} ticks, volume {seen['volume']:8}, last {seen['last']}")
