"""A subscriber's place in the events of one publisher."""

import pytest

from quillcast.core.ranges import RangeSet
from quillcast.protocol.forwarding.cursors import PublisherCursor


@pytest.mark.parametrize(("delivered", "awaited"), [(None, []), (RangeSet([(0, 3), (38, 43)]), [(10, 21)])])
def test_what_another_term_is_to_bring_stays_awaited_where_order_is_no_matter(
    delivered: RangeSet | None, awaited: list[tuple[int, int]]
) -> None:
    cursor = PublisherCursor()
    cursor.next, cursor.delivered = 43, delivered
    cursor.await_again([(10, 21)])
    cursor.look_over()
    assert [*cursor.awaited] == awaited
