"""How running demos are found, and the commands for them from other terminals."""

from pathlib import Path

from quillcast.live.discovery.rendezvous import Rendezvous, runtime_folder

HOW_TO = "quillcast demo kill|partition|slow PEER (quillcast demo peers lists them)"
_SOCKET = "demo.sock"


def control_path(network: str) -> Path:
    """The socket where the demo of this network accepts commands."""
    return Rendezvous(network).folder / _SOCKET


def demos_here() -> list[str]:
    """The networks of the demos that run on this machine: those with live peers."""
    names = sorted(path.parent.name for path in runtime_folder().glob(f"*/{_SOCKET}"))
    return [name for name in names if Rendezvous(name).entries()]
