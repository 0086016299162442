"""The protocol keeps the rules that quillcast checks."""

from roll_call import RollCall

from quillcast.protocol.reliability.conformance import check


def test_it_keeps_the_rules() -> None:
    report = check(RollCall, whole=True, sizes=(1, 2, 3, 6, 17))
    assert report.messages > 0
