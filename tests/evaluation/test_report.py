"""The pictures and tables of a page, from figures made up here."""

import math
import re
from itertools import pairwise

import numpy as np

from quillcast.evaluation.report import charts
from quillcast.evaluation.report.charts import Mark
from quillcast.evaluation.report.page import fill
from quillcast.evaluation.report.tables import tables
from quillcast.pipeline.pictures import standalone, tree

SIXTEEN = [f"policy_{number}(16)" for number in range(16)]
COLUMNS_MAX = 14  # of a table that fits into the page beside a policy's name


def test_an_axis_ends_at_a_percentile_and_what_is_beyond_is_listed() -> None:
    policies = {f"near{at}": [1.0] * 10 + [1.5 + at / 10] for at in range(6)}
    policies |= {"far": [*[2.0] * 18, 50.0, 118.0], "none": [math.nan]}
    picture = charts.shares(policies, "rad", "RAD")
    assert (
        picture.note
        == "The axis ends at 2: for 6 of 7 policies, 99 % of the events are within. Beyond it: far: 10 %, up to 118."
    )
    assert ("far", 118.0, 100.0) in picture.rows, "the data are whole"
    assert max(map(float, labels(picture.svg, r"\d+\.\d+"))) <= 2


def test_without_outliers_there_is_no_note() -> None:
    assert charts.shares({"one": [1.0] * 50}, "rad", "RAD").note == ""
    assert charts.shares({"nobody": []}, "rad", "RAD").rows == []


def test_counts_are_never_negative_nor_below_one() -> None:
    histograms = {("peer", "entries"): [(0.0, 50), (1.0, 30), (2.5, 6), (900.0, 1)]}
    picture = charts.node_stress({"one": histograms}, "entries", "entries")
    assert picture.rows == [("one", 1.0, 37), ("one", 2.5, 7), ("one", 900.0, 1)]
    shown = [float(label.replace(",", "")) for label in labels(picture.svg, r"[-−]?[\d,.]+")]
    assert min(shown) >= 0.1
    assert not re.search(r">[-−]", picture.svg)


def test_of_many_values_enough_are_kept_with_the_last() -> None:
    many = [(float(value), 1) for value in range(1, 5001)]
    picture = charts.node_stress({"one": {("peer", "tables"): many}}, "tables", "tables")
    assert len(picture.rows) <= charts.POINTS_MAX
    assert picture.rows[-1] == ("one", 5000.0, 1)


def test_sixteen_lines_differ_and_neighbours_in_colour_and_dashes() -> None:
    styles = [charts.style(at) for at in range(16)]
    pairs = [(each["color"], str(each["linestyle"])) for each in styles]
    assert len(set(pairs)) == 16
    assert all(one[0] != other[0] and one[1] != other[1] for one, other in pairwise(pairs))


def test_all_names_of_a_picture_stand_on_lines_of_their_own() -> None:
    picture = charts.shares({policy: [1.0, 2.0] for policy in SIXTEEN}, "rad", "RAD")
    places = re.findall(r"translate\([\d.]+ ([\d.]+)\)[^>]*>(policy_\d+\(16\))<", picture.svg)
    places = places or re.findall(r"y=\"([\d.]+)\"[^>]*>(policy_\d+\(16\))<", picture.svg)
    heights = sorted(float(y) for y, _ in places)
    assert len(heights) == 16
    assert np.diff(heights).min() > 8


def test_a_picture_of_its_own_has_a_colour_and_a_table() -> None:
    picture = charts.side_by_side([Mark("a", "star", 1.0, 0.5, 1.5), Mark("b", "star", 90.0, None, None)], "x", "X")
    assert "currentColor" not in standalone(picture.svg)
    assert picture.csv == "run,policy,x,low,high\na,star,1.0,0.5,1.5\nb,star,90.0,,\n"


def test_tables_of_many_policies_fit() -> None:
    spread = dict.fromkeys(("median", "p90", "p99", "max"), 1.0)
    ratios = dict.fromkeys(("rad", "rmd", "rad_from_root", "rmd_from_root", "hops", "mine"), spread)
    figures = ratios | {"entries": spread, "messages": 3.0, "by_size": [], "churn": {"killed": 1}}
    made = tables(dict.fromkeys(SIXTEEN, figures))
    assert [table.title for table in made][-2:] == ["Messages", "Churn"]
    assert all(len(table.columns) <= COLUMNS_MAX and len(table.rows) == 16 for table in made)
    assert sum(len(table.columns) for table in made) == 7 * 4 + 2


def test_long_names_in_a_tree_do_not_reach_the_next_level() -> None:
    names = [f"#{10_000_000 + at} · 12345 ms" for at in range(3)]
    rows = [
        {"peer": name, "parent": names[at - 1] if at else None, "is_root": not at, "depth": at}
        for at, name in enumerate(names)
    ]
    places = [float(x) for x in re.findall(r"<circle cx=\"([\d.]+)\"", tree(rows))]
    assert np.diff(places).min() > 6 * len(names[0])


def test_names_are_escaped() -> None:
    content = {"title": "<b>", "subtitle": "", "columns": [], "rows": {"<i>": []}}
    page = fill("comparison.html.j2", content=content, runs=[], pictures=[])
    assert "<b>" not in page
    assert "<i>" not in page


def labels(svg: str, pattern: str) -> list[str]:
    return re.findall(rf">({pattern})</text>", svg)
