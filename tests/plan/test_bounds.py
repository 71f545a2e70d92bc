"""Is the state bounded? The verdict for each input, why, and what to declare where it is not."""

import pytest

import streamjoin as sj
from streamjoin.plan.bounds import check, closes_keys, warning_text
from tests.tables import schema, stream

TIMED = {"time": "t", "lateness": "0 seconds"}
WINDOW = {**TIMED, "window": "10 seconds"}
MARKED = {"punctuation": sj.marked("end")}
CONTROL = {**TIMED, "punctuation": sj.control(schema("k t:time"), time="t")}


def input_(name, **declared):
    return stream(name, f"k {name}_x t:time end:bool", **declared)


def verdicts(*streams):
    """(tuples bounded, closed keys bounded) by input."""
    return {bound.stream: (bound.tuples, bound.closed_keys) for bound in check(streams)}


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({}, None),
        (WINDOW, None),
        (MARKED, r"punctuations of a (rows marked end)"),
        ({"punctuation": sj.closing("end")}, "closing rows of a"),
        (CONTROL, "the control stream of a (as event time moves on a)"),
        ({"arrival": sj.clustered()}, "clustered arrival of a"),
        ({"arrival": sj.ordered()}, "ordered arrival of a"),
        ({"unique": True}, "the unique key of a"),
    ],
)
def test_what_closes_keys(declared, words):
    assert closes_keys(input_("a", **declared)) == words


def test_nothing_declared_bounds_nothing():
    assert verdicts(input_("a"), input_("b")) == {"a": (False, True), "b": (False, True)}


def test_a_window_bounds_its_own_tuples_only():
    assert verdicts(input_("a", **WINDOW), input_("b", **TIMED)) == {"a": (True, True), "b": (False, True)}
    assert verdicts(input_("a", **WINDOW), input_("b", **WINDOW)) == {"a": (True, True), "b": (True, True)}


@pytest.mark.parametrize(
    "closes",
    [MARKED, CONTROL, {"unique": True}, {"arrival": sj.clustered()}, {"arrival": sj.ordered(slack=3)}],
)
def test_what_closes_one_input_bounds_the_tuples_of_the_other(closes):
    """… but its closed keys are remembered as long as the other stays open."""
    assert verdicts(input_("a", **closes), input_("b")) == {"a": (False, False), "b": (True, True)}


def test_punctuations_of_a_control_stream_wait_for_its_event_time():
    (bound, _) = check([input_("a", **CONTROL), input_("b", **MARKED)])
    assert (bound.tuples, bound.closed_keys) == (True, True)
    assert any("are state until the watermark of a passes their time" in reason for reason in bound.reasons)


def test_both_inputs_close_their_keys():
    assert verdicts(input_("a", unique=True), input_("b", **MARKED)) == {"a": (True, True), "b": (True, True)}


def test_every_other_input_must_close():
    found = verdicts(input_("a", unique=True), input_("b", **MARKED), input_("c"))
    assert found == {"a": (False, False), "b": (False, False), "c": (True, True)}


def test_a_bounded_window_join_still_remembers_the_keys_of_a_unique_input():
    """… and says so."""
    bounds = check([input_("a", **WINDOW, unique=True), input_("b", **WINDOW)])
    assert [(bound.tuples, bound.closed_keys) for bound in bounds] == [(True, False), (True, True)]
    assert bounds[0].reasons[-1] == (
        "closed keys of a are remembered until b closes them too, which nothing declares"
    )


def test_orphans_are_named():
    """A bid whose auction never comes stays for ever: the bound holds only without such bids."""
    bounds = check([input_("auction", unique=True), input_("bid", **MARKED)])
    assert "provided every key of bid appears in auction" in " ".join(bounds[1].reasons)
    assert "appears" not in " ".join(bounds[0].reasons)
    assert bounds[0].why[0].says == "its tuples are purged by punctuations of bid (rows marked end)"
    assert bounds[0].why[0].provided == "every key of auction is punctuated there"


def test_a_key_that_has_no_cluster_stays_too():
    (_, bound) = check([input_("line", arrival=sj.clustered()), input_("order")])
    assert bound.reasons == (
        "its tuples are purged by clustered arrival of line, provided every key of order appears in line",
    )


def test_the_slowest_partition_holds_an_order_back():
    partitioned = stream("a", "k p o", arrival=sj.ordered(), sequence=["p", "o"])
    (reason,) = check([partitioned, input_("b")])[1].reasons
    assert reason.startswith("its tuples are purged by ordered arrival of a, provided every partition of a ")
    assert "a: ordered arrival in each partition, slack 0" in sj.join(partitioned, input_("b")).explain()


def test_a_window_holds_provided_time_moves_on_the_others():
    (bound, *_) = check([input_("a", **WINDOW), input_("b", **TIMED), input_("c", **TIMED)])
    assert bound.reasons == ("its window of 10 s evicts tuples, provided event time moves on b and c",)


def test_advice_names_the_input_to_declare_it_on_and_the_most_useful_first():
    (bound, _) = check([input_("news", unique=True), input_("access")])
    assert bound.advice == (
        "punctuation=, arrival= or unique=True on access, if a key of access ever ends",
        "window= on news (with time= and lateness= on every input)",
        "ttl= on news as a last resort, which loses tuples (with time= and lateness= on news)",
    )


def test_the_warning_names_what_grows_and_what_to_declare():
    text = warning_text(check([input_("news", unique=True), input_("access")]))
    assert text.startswith("the state of this join grows with its input. news: declare punctuation=")
    assert "access: declare" not in text  # bounded by the unique key of news


def test_no_warning_where_all_is_bounded():
    assert warning_text(check([input_("news", unique=True), input_("access", **MARKED)])) is None


def test_a_warning_where_only_the_closed_keys_grow():
    """Closed keys are state too: it never grows without a warning."""
    bounds = check([input_("a", **WINDOW, unique=True), input_("b", **WINDOW)])
    text = warning_text(bounds)
    assert text is not None
    assert "on b" in text


def test_explain_shows_verdict_reasons_and_advice():
    told = sj.join(input_("news", unique=True), input_("access")).explain()
    assert "news: NOT BOUNDED" in told
    assert "to bound it, declare punctuation=, arrival= or unique=True on access" in told
    assert "access: bounded" in told
    told = sj.join(input_("a", **WINDOW, unique=True), input_("b", **TIMED)).explain()
    assert "a: tuples bounded, remembered keys unbounded" in told


# ---------------------------------------------------------------- a ttl, and strict


def test_a_ttl_bounds_by_loss():
    bound = check([input_("a", **TIMED, ttl="2 hours"), input_("b")])[0]
    assert (bound.tuples, bound.closed_keys, bound.advice) == (True, True, ())
    assert bound.loses == "tuples older than 2 h, whatever they could still join (counted as a_expired)"
    assert bound.reasons == ("its ttl of 2 h evicts tuples, provided event time moves on a",)


def test_a_ttl_that_should_never_act():
    for declared, other in (({}, {"unique": True}), ({"window": "10 seconds"}, TIMED)):
        bound = check([input_("a", **TIMED, ttl="2 hours", **declared), input_("b", **other)])[0]
        assert bound.loses is None
        assert "its ttl of 2 h should never act" in bound.reasons[-1]


def test_a_ttl_shorter_than_the_window_loses_tuples():
    bound = check([input_("a", **WINDOW, ttl="2 seconds"), input_("b", **TIMED)])[0]
    assert bound.loses is not None


def test_a_ttl_does_not_bound_the_closed_keys():
    assert verdicts(input_("a", **TIMED, ttl="2 hours", unique=True), input_("b"))["a"] == (True, False)


def test_strict_refuses_what_nothing_bounds():
    streams = input_("news", unique=True), input_("access")
    with pytest.raises(
        sj.InvalidJoin, match=r"news: declare punctuation=.* on access.*leave strict=True out"
    ):
        sj.join(*streams, strict=True)
    assert sj.join(input_("news", unique=True), input_("access", **MARKED), strict=True)
    assert sj.join(*(input_(name, **TIMED, ttl="1 hour") for name in "ab"), strict=True)
    with pytest.raises(sj.InvalidJoin, match="strict='yes'; give True"):
        sj.join(*streams, strict="yes")


def test_strict_refuses_closed_keys_that_are_remembered_for_ever():
    with pytest.raises(sj.InvalidJoin, match="so that closed keys of a are forgotten"):
        sj.join(input_("a", **WINDOW, unique=True), input_("b", **TIMED), strict=True)
