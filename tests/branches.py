"""Simulations that have the same beginning run it once, and each goes on from there in a fork of this process."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

T = TypeVar("T")


def branch(go_on: Callable[..., T], *args: object) -> T:
    """What a function returns or raises in a fork. Nothing that it changes is changed here."""
    with ProcessPoolExecutor(1, get_context("fork")) as fork:
        return fork.submit(go_on, *args).result()
