"""What the peers of one machine together know about their topics."""

from collections.abc import Iterable, Sequence

from quillcast.core.status.machines import TopicSummary
from quillcast.core.status.peers import NodeStatus
from quillcast.core.status.topics import TopicStatus
from quillcast.protocol.topics.stability.lag import events_together

Part = tuple[str, TopicStatus]
"""A peer's nodeId, and its part in a topic."""


def parts_by_topic(statuses: Iterable[NodeStatus]) -> dict[tuple[str, str], list[Part]]:
    """The parts of all peers in each topic, by the topic's name and root scope."""
    found: dict[tuple[str, str], list[Part]] = {}
    for status in statuses:
        for topic in status.topics:
            found.setdefault((topic.name, topic.settings.root_scope), []).append((status.node_id, topic))
    return dict(sorted(found.items()))


def summary(parts: Sequence[Part]) -> TopicSummary:
    """Summarize one topic from the peers' parts in it. The root knows its settings best."""
    root, described = next((part for part in reversed(parts) if part[1].role == "root"), (None, parts[0][1]))
    topics = [topic for _, topic in parts]
    return TopicSummary(
        name=described.name,
        topic_id=described.topic_id,
        settings=described.settings,
        root=root,
        events=events_together((topic.events, topic.readmitted) for topic in topics),
        peers=sum(topic.in_tree for topic in topics),
        subscriptions=sum(topic.subscriptions for topic in topics),
        publishers=sum(topic.publishers for topic in topics),
    )
