"""How a bundle crosses a channel between scopes: its record decides, then the channel's filter, and the record changes.

To the data path that is a filter of an ordinary channel (`forwarding.channels.Channel`) to the peer at the other end.
"""

from collections.abc import Callable
from functools import lru_cache

import msgspec

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Envelope
from quillcast.core.multicast import parse
from quillcast.protocol.forwarding import channels
from quillcast.protocol.scopes.channels import ChannelOrder, Multicast
from quillcast.protocol.scopes.filters import Customs, on_bundles
from quillcast.protocol.scopes.records import decode, encode

ROUTES_MAX = 256  # per channel: a bundle of one topic comes with few different records, one per origin and way here


def crossing(order: ChannelOrder, begun: Callable[[Envelope], bytes], customs: Customs) -> channels.BundleFilter:
    """The bundle as it leaves over this channel; None if it does not take it.

    `begun` gives the record of bundles that have none, because they start here. Records of others
    were checked when they arrived (`LocalController.read`, `admits`). Raises as `compiled`, and `Malformed` if
    the channel's multicast mechanism is not known here.
    """
    decide = on_bundles(order.filter, customs) if order.filter is not None else None

    most_bytes = parse(order.spec.mechanism).bundle_bytes_max if isinstance(order.spec, Multicast) else None

    @lru_cache(ROUTES_MAX)
    def routed(topic: bytes, record: bytes) -> bytes | None:
        changed = order.route(topic, decode(record))
        return encode(changed) if changed is not None else None

    def cross(bundle: Bundle) -> Bundle | None:
        if most_bytes is not None and bundle.size > most_bytes:
            return None  # links of the tree carry it (`filters.Larger`)
        topic, record = bundle.envelope.topic, bundle.envelope.record
        changed = routed(topic, record or begun(bundle.envelope))
        entering = bundle if decide is None or changed is None else decide(bundle)
        if changed is None or entering is None:
            return None
        return entering.under(msgspec.structs.replace(entering.envelope, record=changed))

    return cross
