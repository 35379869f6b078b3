"""Accounting: no sequence of events loses a group or counts it twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.driver.accounts import Accounts
from rlvr.records import Group, GroupState, Prompt

ENDS = [GroupState.TRAINED, GroupState.DROPPED, GroupState.FAILED]


def a_group(name: str) -> Group:
    return Group(id=name, prompt=Prompt(id="p", reference="1", text="?"), step=1)


def end(group: Group, state: GroupState) -> None:
    if state is GroupState.TRAINED:
        for passed in (GroupState.GENERATED, GroupState.SCORED, GroupState.READY):
            group.advance(passed)
    group.advance(state, reason="why")


@given(st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 50), st.sampled_from(ENDS)))))
def test_issued_equals_trained_dropped_failed_and_in_flight(events):
    """None issues a group; (i, state) ends the i-th of those in flight."""
    accounts, flying, ended = Accounts(), [], dict.fromkeys(ENDS, 0)
    for serial, event in enumerate(events):
        if event is None:
            flying.append(a_group(str(serial)))
            accounts.issue(flying[-1])
        elif flying:
            group = flying.pop(event[0] % len(flying))
            end(group, event[1])
            accounts.close(group)
            ended[event[1]] += 1
        counts = accounts.counts()
        assert counts["issued"] == counts["trained"] + counts["dropped"] + counts["failed"] + counts["in_flight"]
        assert counts["in_flight"] == len(flying)
        assert (counts["trained"], counts["dropped"], counts["failed"]) == tuple(ended.values())


def test_a_group_cannot_be_issued_twice():
    accounts = Accounts()
    accounts.issue(a_group("a"))
    with pytest.raises(ValueError, match="issued twice"):
        accounts.issue(a_group("a"))


def test_a_group_cannot_end_twice_or_unfinished():
    accounts, group = Accounts(), a_group("a")
    accounts.issue(group)
    with pytest.raises(ValueError, match="no end"):
        accounts.close(group)
    group.advance(GroupState.DROPPED, "why")
    accounts.close(group)
    with pytest.raises(ValueError, match="not in flight"):
        accounts.close(group)


def test_a_lost_group_is_noticed():
    accounts = Accounts()
    accounts.issue(a_group("a"))
    accounts.issued += 1
    with pytest.raises(RuntimeError, match="2 groups issued"):
        accounts.check()


@pytest.mark.parametrize("state", [GroupState.SCORED, GroupState.READY, GroupState.TRAINED])
def test_a_group_cannot_skip_a_state(state):
    with pytest.raises(ValueError, match="cannot go"):
        a_group("a").advance(state)


def test_an_ended_group_stays_ended():
    group = a_group("a")
    group.advance(GroupState.FAILED, "infrastructure")
    with pytest.raises(ValueError, match="cannot go"):
        group.advance(GroupState.DROPPED, "late")
