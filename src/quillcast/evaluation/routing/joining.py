"""Routing tables as joining finds them, as opposed to ideal tables (Scribe, section 2; Pastry).

Peers join one after another. A newcomer looks for a nearby contact, has its join request routed from there to its own
id, and copies from the tables of the peers on the route. Then it announces itself to the peers that it knows. When all
have joined, each exchanges rows with some peers a few times.
"""

import numpy as np
from numba import njit

from quillcast.evaluation.chance import below, mix
from quillcast.evaluation.network import Ints
from quillcast.evaluation.routing.pastry import (
    ID_BITS,
    Tables,
    Truth,
    Whole,
    digit,
    inlined,
    inner,
    proximity,
    shared_digits,
)

NEARBY_ROUNDS = 4  # `OverlayConfig.nearby_rounds`
EXCHANGES = 4  # rounds of maintenance after the last join; `OverlayConfig.maintenance_s`, some minutes' worth
_ORDER, _CONTACT, _ROW = 41, 42, 43  # purposes of random draws


def joined(tables: Tables) -> Ints:
    """Return the content of each cell after all have joined, int32 [peers, rows, 2**b]; -1 if it is empty.

    Simplified: only the final leaf sets are modelled, whose members are considered at the end; peers do not fail. Needs
    4 * 2**b * (log N + 3) bytes for each peer.
    """
    count = len(tables.ids)
    rows = min(ID_BITS // tables.digit_bits, int(np.log(max(count, 2)) / np.log(1 << tables.digit_bits)) + 3)
    cells = np.full((count, rows, 1 << tables.digit_bits), -1, np.int32)
    draws = np.array([int(mix(tables.seed, _ORDER, peer)) for peer in range(count)], np.uint64)
    _join_all(tables, cells, np.argsort(draws, kind="stable").astype(np.int32))
    return cells


@njit(cache=True)
def _join_all(tables: Tables, cells: Ints, order: Ints) -> None:
    for at in range(1, len(order)):
        first = order[below(mix(tables.seed, _CONTACT, at), at)]
        newcomer = order[at]
        contact = _nearby(tables, cells, newcomer, first)
        _take_rows_on_the_way(tables, cells, newcomer, contact)
        for row in range(cells.shape[1]):
            for column in range(cells.shape[2]):
                if cells[newcomer, row, column] >= 0:
                    consider(tables, cells, cells[newcomer, row, column], newcomer)
        _ask_the_nearest(tables, cells, newcomer)
    count = len(order)  # peers are int32 in all calls, so that numba compiles each kernel once
    for peer in range(count):
        for step in range(-min(tables.half, count), min(tables.half, count) + 1):
            _enter(tables, cells, np.int32(peer), np.int32((peer + step) % count))
    for exchange in range(EXCHANGES):
        for peer in range(count):
            _exchange_rows(tables, cells, np.int32(peer), exchange)


@inner
def consider(tables: Tables, cells: Ints, peer: Whole, other: Whole) -> Truth:
    """Enter a peer if its cell is empty or has a farther one (`RoutingTable.consider`)."""
    if other == peer:
        return False
    row = shared_digits(tables.ids[peer], tables.ids[other], tables.digit_bits)
    if row >= cells.shape[1]:
        return False
    column = digit(tables.ids[other], row, tables.digit_bits)
    there = cells[peer, row, column]
    if there >= 0 and _apart(tables, peer, there) <= _apart(tables, peer, other):
        return False
    cells[peer, row, column] = other
    return True


@inner
def _enter(tables: Tables, cells: Ints, peer: Whole, other: Whole) -> None:
    """Consider a peer. If it entered, it considers this one in turn (`Maintenance.announced`)."""
    if consider(tables, cells, peer, other):
        consider(tables, cells, other, peer)


@inner
def _ask_the_nearest(tables: Tables, cells: Ints, peer: Whole) -> None:
    """The nearest peer of each row sends that row and the first one (second stage of joining, `Maintenance.start`)."""
    for row in range(cells.shape[1]):
        nearest: Whole = np.int32(-1)
        for column in range(cells.shape[2]):
            other = cells[peer, row, column]
            if other >= 0 and (nearest < 0 or _apart(tables, peer, other) < _apart(tables, peer, nearest)):
                nearest = other
        if nearest < 0:
            continue
        for given in (0, row):
            for column in range(cells.shape[2]):
                if cells[nearest, given, column] >= 0:
                    _enter(tables, cells, peer, cells[nearest, given, column])


@inlined
def _apart(tables: Tables, peer: Whole, other: Whole) -> Whole:
    return proximity(tables, tables.place[peer], tables.place[other])


@inner
def _nearby(tables: Tables, cells: Ints, newcomer: Whole, contact: Whole) -> Whole:
    """A nearby contact: from the first one, move to the nearest in its table as long as it is nearer."""
    for _ in range(NEARBY_ROUNDS):
        best = contact
        for row in range(cells.shape[1]):
            for column in range(cells.shape[2]):
                other = cells[contact, row, column]
                if other >= 0 and _apart(tables, newcomer, other) < _apart(tables, newcomer, best):
                    best = other
        if best == contact:
            break
        contact = best
    return contact


@inner
def _take_rows_on_the_way(tables: Tables, cells: Ints, newcomer: Whole, contact: Whole) -> None:
    """Route from the contact to the newcomer's id. Consider each peer on the route, and the rows that fit."""
    here = contact
    while here >= 0:
        consider(tables, cells, newcomer, here)
        shared = shared_digits(tables.ids[here], tables.ids[newcomer], tables.digit_bits)
        for row in range(min(shared + 1, cells.shape[1])):
            for column in range(cells.shape[2]):
                if cells[here, row, column] >= 0:
                    consider(tables, cells, newcomer, cells[here, row, column])
        if shared >= cells.shape[1]:
            break
        following = cells[here, shared, digit(tables.ids[newcomer], shared, tables.digit_bits)]
        here = np.int32(-1) if following == newcomer else following


@inner
def _exchange_rows(tables: Tables, cells: Ints, peer: Whole, exchange: Whole) -> None:
    """For each row, ask a peer in it for the same row of its table."""
    for row in range(cells.shape[1]):
        known = 0
        for column in range(cells.shape[2]):
            known += cells[peer, row, column] >= 0
        if known == 0:
            continue
        chosen = np.int64(below(mix(mix(tables.seed, _ROW, exchange), peer, row), known))
        for column in range(cells.shape[2]):
            other = cells[peer, row, column]
            if other >= 0:
                if chosen == 0:
                    for cell in range(cells.shape[2]):
                        if cells[other, row, cell] >= 0:
                            _enter(tables, cells, peer, cells[other, row, cell])
                    break
                chosen -= 1
