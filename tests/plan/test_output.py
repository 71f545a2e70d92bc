"""The names of the result: keys first, under the first input's names; whatever clashes is prefixed."""

import pyarrow as pa
import pytest

import streamjoin as sj
from tests.tables import stream


def names(*streams):
    return sj.join(*streams).plan.spec.output.names


def test_keys_then_each_inputs_columns_as_declared():
    news = stream("news", "sno title:str keyword:str")
    access = stream("access", "sno ip:str")
    assert names(news, access) == ["sno", "title", "keyword", "ip"]
    assert names(access, news) == ["sno", "ip", "title", "keyword"]


def test_the_key_has_the_first_inputs_name():
    news = stream("news", "sno title:str")
    access = stream("access", "item ip:str")
    assert names(news, access) == ["sno", "title", "ip"]
    assert names(access, news) == ["item", "ip", "title"]


def test_a_composite_key_comes_in_the_first_inputs_order():
    left = stream("left", "a b x", key=["b", "a"])
    right = stream("right", "c d y", key=["c", "d"])
    assert names(left, right) == ["b", "a", "x", "y"]


def test_a_name_on_both_sides_is_prefixed_on_both():
    news = stream("news", "sno title:str")
    access = stream("access", "sno title:str ip:str")
    assert names(news, access) == ["sno", "news_title", "access_title", "ip"]


def test_a_name_on_two_of_three_sides_leaves_the_third_alone():
    assert names(stream("a", "k x"), stream("b", "k x"), stream("c", "k y")) == ["k", "a_x", "b_x", "y"]


def test_a_column_named_like_the_key_is_prefixed_and_the_key_keeps_its_name():
    news = stream("news", "sno title:str")
    access = stream("access", "item sno")
    assert names(news, access) == ["sno", "title", "access_sno"]


def test_the_second_inputs_key_name_is_free():
    news = stream("news", "sno item")
    access = stream("access", "item ip:str")
    assert names(news, access) == ["sno", "item", "ip"]


def test_marker_and_sequence_are_left_out():
    a = stream("a", "k x end:bool part:str o", punctuation=sj.marked("end"), sequence=["part", "o"])
    assert names(a, stream("b", "k y")) == ["k", "x", "y"]


def test_marker_and_sequence_names_do_not_clash():
    a = stream("a", "k x end:bool o", punctuation=sj.marked("end"), sequence="o")
    b = stream("b", "k y end:bool o", punctuation=sj.marked("end"), sequence="o")
    assert names(a, b) == ["k", "x", "y"]


def test_only_the_chosen_columns():
    a = stream("a", "k x y z", columns=["z", "x"])
    assert names(a, stream("b", "k y", columns=[])) == ["k", "z", "x"]


def test_columns_that_are_left_out_do_not_clash():
    assert names(stream("a", "k x"), stream("b", "k x", columns=[])) == ["k", "x"]


def test_a_name_that_a_prefixed_one_equals_is_prefixed_too():
    assert names(stream("a", "k x"), stream("b", "k x a_x")) == ["k", "a_x", "b_x", "b_a_x"]


def test_upper_and_lower_case_are_one_name_between_inputs_and_two_within_one():
    assert names(stream("a", "k x X"), stream("b", "K y")) == ["k", "x", "X", "y"]
    assert names(stream("a", "k x"), stream("b", "i X K")) == ["k", "a_x", "b_X", "b_K"]


def test_a_prefixed_name_that_is_the_keys_is_refused():
    with pytest.raises(
        sj.InvalidJoin, match="more than one column 'a_x'; rename a column or an input, or choose columns="
    ):
        sj.join(stream("a", "a_x x"), stream("b", "a_x x"))


def test_types_are_the_stored_ones_and_the_widened_key():
    a = sj.stream(pa.schema({"k": pa.int32(), "x": pa.large_string()}), name="a", key="k")
    b = sj.stream(pa.schema({"k": pa.int64(), "y": pa.float32()}), name="b", key="k")
    expected = pa.schema({"k": pa.int64(), "x": pa.string(), "y": pa.float32()})
    assert sj.join(a, b).plan.spec.output.equals(expected)
