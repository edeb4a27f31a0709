"""`paper --check`: the protocols of the papers' items against the papers' statements."""

import math
import re
from dataclasses import replace

import pytest

from experiments.cli import main
from experiments.papers.check import check, protocols_of, shown
from experiments.papers.registry import ITEMS
from experiments.papers.stated import Stated, stated


def changed(name, **fields):
    """Returns an item with another protocol."""
    item = ITEMS[name]
    full = item.presets["full"]
    settings = full.settings
    other = settings._replace if isinstance(settings, tuple) else settings.changed
    return replace(item, presets={**item.presets, "full": full._replace(settings=other(**fields))})


def verdicts(item, field):
    return {each.verdict for each in check(item) if each.field == field}


def test_of_one_item_it_prints_the_place_of_everything(capsys):
    assert main(["paper", "lcw/fig5", "--check"]) == 0
    printed = capsys.readouterr().out
    row = next(line for line in printed.splitlines() if "| learning_rate" in " ".join(line.split()))
    assert [part.strip() for part in row.split("|")[4:8]] == ["0.1", "0.1", "6.1", "as stated"]


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("cwo/tab3", {"epochs": 100}),
        ("lcw/fig5", {"rate_schedule": ()}),
        ("lcw/fig4", {"depth": 19}),
    ],
)
def test_another_protocol_is_reported(name, fields):
    (field,) = fields
    assert verdicts(ITEMS[name], field) <= {"as stated", "ours"}
    assert "differs" in verdicts(changed(name, **fields), field)


def test_two_fields_alone_differ_from_the_texts():
    """Compares the protocols, made from `experiments.papers.recipes`, with the papers."""
    checked = [each for item in ITEMS.values() for each in check(item)]
    found = {(each.item, each.field) for each in checked if each.verdict == "differs"}
    assert found == {("lcw/fig1", "draws"), ("cwo/radius", "Constrained.squared_radius")}


def test_what_no_text_states_is_ours():
    assert verdicts(ITEMS["cwo/tab1"], "seeds") == {"ours"}
    assert verdicts(replace(ITEMS["cwo/tab1"], name="toy/tab1"), "epochs") == {"ours"}


def test_every_statement_is_about_something():
    """A misspelt name would pass for a field that no protocol has."""
    assert set(stated()) <= set(ITEMS)
    for name, statements in stated().items():
        protocols = protocols_of(ITEMS[name])
        for each in statements:
            cells = [cell for cell in protocols if re.search(each.where, cell)]
            assert any(each.field in protocols[cell] for cell in cells), (name, each)
            assert each.place


def test_drops_are_in_epochs_and_shown_shortly():
    (protocol, *_) = protocols_of(ITEMS["bn/fig3"]).values()
    assert [epoch for epoch, _ in protocol["rate_schedule"]] == [30, 60, 90]
    assert shown(protocol["rate_schedule"]) == "x 0.1 from 30, x 0.01 from 60, x 0.001 from 90"
    (protocol, *_) = protocols_of(ITEMS["lcw/fig5"]).values()
    assert len(shown(protocol["rate_schedule"])) < 60
    assert math.isclose(protocol["rate_schedule"][-1][1], 0.01)


def test_the_first_statement_counts():
    item = changed("lcw/fig4")
    own = (Stated("depth", 20, "here"), Stated("depth", 3, "there"))
    (depth,) = (each for each in check(item, own) if each.field == "depth")
    assert (depth.stated.place, depth.verdict) == ("here", "as stated")


def test_what_is_stated_and_not_done_is_reported():
    found = check(ITEMS["lcw/fig4"], [Stated("whitening", True, "4.4")])
    assert [(each.ours, each.verdict) for each in found if each.field == "whitening"] == [
        ("none", "differs")
    ]
