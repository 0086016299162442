"""Tables and sizes as plain text."""

from collections.abc import Iterable, Iterator, Sequence

_UNITS = ("B", "kB", "MB", "GB", "TB")


def sized(size_bytes: float) -> str:
    """A number of bytes in a readable unit."""
    unit = 0
    while size_bytes >= 1000 and unit < len(_UNITS) - 1:
        size_bytes /= 1000
        unit += 1
    return f"{size_bytes:.0f} {_UNITS[unit]}" if unit == 0 or size_bytes >= 100 else f"{size_bytes:.1f} {_UNITS[unit]}"


def counted(count: int, noun: str) -> str:
    """A number of things in words, such as `2 peers`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def table(
    title: str, columns: list[str], rows: Iterable[Sequence[object]], left_count: int | None = None
) -> Iterator[str]:
    """Return rows below their column names; nothing if there are no rows.

    The first `left_count` columns are aligned left (all if it is None), the others right.
    """
    shown = [[str(cell) for cell in row] for row in rows]
    if not shown:
        return
    widths = [max(map(len, column)) for column in zip(columns, *shown, strict=True)]
    yield f"{title}:"
    for row in (columns, *shown):
        aligned = [
            cell.ljust(width) if left_count is None or at < left_count else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  " + "  ".join(aligned).rstrip()
