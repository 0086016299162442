"""Ask about a topic by its name. Scopes may have topics of the same name as a topic of the overlay.

Peers outside a root scope know nothing about its topics, so only peers that take part are asked.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from quillcast.cli.asking import SILENT_S, answered, ask_each, ask_one, choose, peers_here
from quillcast.core.errors import UnknownTopic
from quillcast.core.status.peers import NodeStatus
from quillcast.core.status.topics import TopicStatus
from quillcast.core.status.trees import TreeStatus
from quillcast.live.discovery.questions import StatusQuestion, TraceQuestion, TreeQuestion
from quillcast.live.discovery.registry import Entry

T = TypeVar("T")
Statuses = Sequence[tuple[Entry, NodeStatus | None]]
"""The answers of this machine's peers."""
Parts = list[tuple[Entry, TopicStatus]]
"""Peers of this machine, and their parts in one topic."""


def called(topic: str, root_scope: str) -> str:
    """A topic's name for people, distinguished from other topics of the same name."""
    return f"{topic} (root scope {root_scope})" if root_scope else topic


def ask_about(
    network: str, prefix: str, question: TreeQuestion | TraceQuestion, kind: type[T], *,
    statuses: Statuses = (), timeout_s: float = SILENT_S,
) -> dict[str, T]:  # fmt: skip
    """Return what peers here report about the topics of a name, by root scope. Raises `UnknownTopic` if none exists.

    The ids of those peers begin with `prefix`. `statuses`: of all peers here, if the caller has them already.
    """
    entries, topic = choose(network, prefix), question.topic
    known = [each for each in statuses if each[0] in entries] or ask_each(
        network, entries, StatusQuestion(), NodeStatus
    )
    answered(known)  # names silent peers
    asked = _to_ask(network, topic, known)
    if not asked:
        raise no_topic(network, topic, prefix)

    def ask(entries: list[Entry]) -> T:
        return ask_one(network, entries, question, kind, timeout_s=timeout_s)

    with ThreadPoolExecutor(len(asked)) as pool:
        return dict(zip(asked, pool.map(ask, asked.values()), strict=True))


def parts_by_root(topic: str, statuses: Statuses) -> dict[str, Parts]:
    """The peers' parts in the topics of a name, by root scope. Peers in the tree come first."""
    found: dict[str, Parts] = {}
    for entry, status in statuses:
        for part in status.topics if status is not None else ():
            if part.name == topic:
                found.setdefault(part.settings.root_scope, []).append((entry, part))
    return {root: sorted(found[root], key=lambda each: not each[1].in_tree) for root in sorted(found)}


def is_unknown(tree: TreeStatus) -> bool:
    """Whether the topic is unknown to everyone who was asked."""
    return tree.complete and not tree.peers and tree.settings is None


def no_topic(network: str, topic: str, prefix: str = "") -> UnknownTopic:
    """The error that no such topic exists, or that the peers whose id begins with `prefix` do not know it."""
    statuses = ask_each(network, peers_here(network), StatusQuestion(), NodeStatus) if prefix else []
    for root, ((entry, _), *_) in parts_by_root(topic, statuses).items():
        which = f"with the root scope {root}" if root else "of the overlay"
        return UnknownTopic(
            f"peer {prefix} knows no topic {topic!r}; peer {entry.node_id[:8]} knows one {which}: leave out --peer, or "
            "name that peer"
        )
    return UnknownTopic(f"there is no topic {topic!r}; `quillcast topic list` shows those of this machine")


def _to_ask(network: str, topic: str, statuses: Statuses) -> dict[str, list[Entry]]:
    """Return the peers here to ask, for each root scope of a topic of this name: the peers that take part.

    If no peer takes part, finds out which peers know the topic. Peers in the same scopes know the same.
    """
    if here := parts_by_root(topic, statuses):
        return {root: [entry for entry, _ in parts] for root, parts in here.items()}
    alike: dict[frozenset[str], list[Entry]] = {}
    for entry, status in statuses:
        if status is not None:
            alike.setdefault(frozenset(each.scope for each in status.memberships), []).append(entry)
    found: dict[str, list[Entry]] = {}
    for entries in alike.values():
        tree = ask_one(network, entries, TreeQuestion(topic), TreeStatus)
        if not is_unknown(tree):
            found.setdefault(tree.settings.root_scope if tree.settings is not None else "", entries)
    return dict(sorted(found.items()))
