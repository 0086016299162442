"""How running demos are found, and the commands for them from other terminals."""

from pathlib import Path

from quillcast.live.discovery.registry import PeerRegistry, running_networks, runtime_folder

HOW_TO = "quillcast demo kill|partition|slow PEER (quillcast demo peers lists them)"
NETWORK = "demo-"  # begins the name of a demo's network; its process id follows
_SOCKET = "demo.sock"


def control_path(network: str) -> Path:
    """The socket where the demo of this network accepts commands."""
    return PeerRegistry(network).folder / _SOCKET


def demos_here() -> list[str]:
    """The networks of the demos that run on this machine and accept commands: those with live peers."""
    names = sorted(path.parent.name for path in runtime_folder().glob(f"*/{_SOCKET}"))
    return [name for name in names if PeerRegistry(name).entries()]


def deaf_demos() -> list[str]:
    """The networks of demos that run here and accept no commands: with --scopes, or not ready yet."""
    return [name for name in running_networks() if name.startswith(NETWORK) and not control_path(name).exists()]
