"""The corpora before nginx and Envoy: each differs from Lapwing as its rows say, for a reason of reasons.toml, and no other way."""

import beside
import peers
import pytest
from corpus import REASONS, differences, load, run, upstream

ROWS = load("requests") + load("responses")


@pytest.fixture(scope="module", params=beside.PEERS)
def peer(request):
    """A peer before the corpora's upstream."""
    name = request.param
    if not peers.BINARIES[name]():
        pytest.skip(peers.MISSING[name])
    with upstream(ROWS) as up, peers.running(name, up.port) as port:
        yield name, port, up


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['family']}: {row['name']}" for row in ROWS])
def test_beside(peer, row):
    name, port, up = peer
    assert differences(row, run(row, port, up)) == beside.excused(row, name)


def test_every_difference_has_a_reason_and_every_reason_a_difference():
    told = [row[name]["why"] for row in ROWS for name in beside.PEERS if name in row]
    assert set(told) == set(REASONS)


def test_names_of_rows_are_unique():
    names = [(row["family"], row["name"]) for row in ROWS]
    assert len(names) == len(set(names)) >= 160


def test_the_counts_by_reason_are_those_of_the_rows():
    assert beside.table(ROWS) + "\n" == (peers.ROOT / "tests/hostile/beside.txt").read_text()
