"""Asking the peers of this machine that run already."""

from typing import Any

from quillcast.core.errors import LocalError, Unreachable
from quillcast.live.control import ANSWER_TIMEOUT_S, ask
from quillcast.live.rendezvous import Entry, Rendezvous


def peers_here(network: str) -> list[Entry]:
    """The network's peers on this machine, the oldest first. Raises `Unreachable` where there are none."""
    entries = Rendezvous(network).entries()
    if not entries:
        raise Unreachable(f"no peer of the network {network!r} runs on this machine; start one with: quillcast node")
    return entries


def ask_peer(network: str, prefix: str, question: str, **arguments: Any) -> Any:
    """The answer of the oldest peer here whose id begins with `prefix`."""
    entries = peers_here(network)
    chosen = [entry for entry in entries if entry.node_id.startswith(prefix.lower())]
    if not chosen:
        known = ", ".join(entry.node_id[:8] for entry in entries)
        raise LocalError(f"no peer {prefix!r} of the network {network!r} runs on this machine; there are: {known}")
    return ask(Rendezvous(network).control_path(chosen[0].contact), question, **arguments)


def ask_all(network: str, question: str, *, timeout_s: float = ANSWER_TIMEOUT_S, **arguments: Any) -> list[Any]:
    """The answers of all peers here that give one within `timeout_s` each."""
    rendezvous, answers = Rendezvous(network), []
    for entry in peers_here(network):
        try:
            answers.append(ask(rendezvous.control_path(entry.contact), question, timeout_s=timeout_s, **arguments))
        except Unreachable:
            continue  # it has just ended
    return answers
