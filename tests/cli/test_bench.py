"""`bench`: what it counts is what was published, and its percentiles are those of the samples."""

import json
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from quillcast.cli import bench
from quillcast.cli.bench import Samples
from quillcast.cli.peering import Peering
from quillcast.protocol.config import Config
from tests.cli.commands import Commands


def samples(times_ns: Sequence[int]) -> Samples:
    made = Samples()
    for time_ns in times_ns:
        made.add(time_ns)
    return made


def test_percentiles_are_those_of_the_samples() -> None:
    made = samples([number * 1_000_000 for number in reversed(range(100))])
    assert (made.percentile_ms(50), made.percentile_ms(99)) == (50.0, 99.0)
    assert samples([7_000_000]).percentile_ms(99) == 7.0
    assert Samples().percentile_ms(50) is None


def test_too_many_samples_are_thinned_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "SAMPLES_MAX", 100)
    made = samples([number * 1_000_000 for number in range(10_000)])
    assert made.percentile_ms(50) == pytest.approx(5000, rel=0.05)
    assert made.percentile_ms(99) == pytest.approx(9900, rel=0.05)


@pytest.mark.live
def test_publisher_and_subscriber_count_the_same(quillcast: Commands) -> None:
    subscriber = quillcast.start("bench", "sub", "load", "--json")
    assert "subscribed to load" in subscriber.line(2)
    published = quillcast.json("bench", "pub", "load", "--rate", "500", "--size", "10", "--seconds", "0.5")
    assert published["events"] >= 250
    assert published["bytes"] == 10 * published["events"]
    assert 0 < published["p50_ms"] <= published["p99_ms"]
    received = quillcast.json_of(subscriber)
    assert received["events"] == published["events"] + 1  # the one that found the root
    assert received["lost"] == 0
    assert received["events_per_s"] > 0
    assert 0 < received["p50_ms"] <= received["p99_ms"]


@pytest.mark.live
def test_full_speed_lasts_for_the_whole_duration(quillcast: Commands) -> None:
    subscriber = quillcast.start("bench", "sub", "load", "--count", "1000")
    subscriber.line(2)
    code, out, _ = quillcast.run("bench", "pub", "load", "--seconds", "0.2")
    assert code == 0
    assert " events/s, " in out
    code, out, _ = subscriber.end()
    assert (code, out.split(" in ")[0]) == (0, "1,000 events")


@pytest.mark.live
def test_a_publisher_that_is_interrupted_tells_what_it_measured(quillcast: Commands) -> None:
    subscriber = quillcast.subscribed("load")
    publisher = quillcast.start("bench", "pub", "load", "--rate", "100", "--size", "0", "--seconds", "600", "--json")
    for _ in range(3):
        subscriber.line()
    publisher.signal(signal.SIGINT)
    code, out, _ = publisher.end()
    assert code == 130
    told = json.loads(out)
    assert told["events"] >= 2
    assert 0 < told["seconds"] < 600


@pytest.mark.live
def test_an_unreachable_rate_is_given_up_when_it_lags_too_far(quillcast: Commands) -> None:
    published = quillcast.json("bench", "pub", "load", "--rate", "1e12", "--seconds", "0.1")
    assert 1000 < published["events"] < 1e11


def test_the_other_peer_of_latency_gets_the_same_options() -> None:
    told = Peering("red", None, ("a:1",), Config(), credential=Path("network.pem"), config_file=Path("settings.toml"))
    others = "--network red --contact b:2 --credential network.pem --config settings.toml"
    assert " ".join(told.beside("b:2")) == others
    assert Peering("red", None, (), Config()).beside("b:2") == ["--network", "red"]


@pytest.mark.live
def test_latency_ends_when_events_are_rejected_or_it_is_interrupted(quillcast: Commands) -> None:
    code, _, err = quillcast.run("bench", "latency", "--size", "2000000", "--seconds", "0.5")
    assert code == 2
    assert "over the limit" in err
    latency = quillcast.start("bench", "latency", "--seconds", "600")
    while "bench/" not in quillcast.run("topic", "list")[1]:
        pass  # until one of its two peers has subscribed
    latency.signal(signal.SIGTERM)
    assert latency.end()[0] == 143


@pytest.mark.live
def test_latency_needs_no_other_peer(quillcast: Commands, tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("[overlay]\ndigit_bits = 1\nleaf_set_size = 4\n")  # which both peers of it have to share
    told = quillcast.json("bench", "latency", "--seconds", "0.5", "--rate", "100", "--config", str(settings))
    assert (told["bench"], told["rate_per_s"], told["lost"]) == ("latency", 100, 0)
    assert told["events"] >= 51
    assert 0 < told["p50_ms"] <= told["p99_ms"]
    assert told["root"]
