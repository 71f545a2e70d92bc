"""Punctuations as marked rows, and files read in pieces: any cut, any growth, what is refused."""

import random

import pyarrow as pa
import pytest

from streamjoin.demo.generators.news import ACCESS_SCHEMA, NewsStreams
from streamjoin.errors import BadInput, InvalidJoin
from streamjoin.sources.xml import Position
from streamjoin.sources.xml_rows import FILE_SPAN, MarkedRows, RowFormat, rows_of, scan

ACCESS = RowFormat("record", ACCESS_SCHEMA, key=("sno",))
PAIRS = pa.schema({"a": pa.int64(), "b": pa.string(), "v": pa.float64(), "is_end": pa.bool_()})
TWO_KEYS = RowFormat("record", PAIRS, key=("b", "a"))


def marked(inner: str, form: RowFormat) -> list[tuple]:
    reading = MarkedRows(form)
    tables = reading.feed(f"<s>{inner}</s>".encode()) + reading.close()
    if reading.error is not None:
        raise reading.error
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


def punctuation(**patterns: str) -> str:
    inside = "".join(f"<{name}>{text}</{name}>" for name, text in patterns.items())
    return f"<punct:record>{inside}</punct:record>"


# ---------------------------------------------------------------- a punctuation as rows


@pytest.mark.parametrize(
    ("element", "rows"),
    [
        (punctuation(a="79", b="x"), [(79, "x")]),
        (punctuation(a="79"), [(79, None)]),
        (punctuation(), [(None, None)]),
        (punctuation(a="{2, 1}", b='{"x", "y"}'), [(1, "x"), (2, "x"), (1, "y"), (2, "y")]),
        (punctuation(a="{}"), []),
        (punctuation(a="[5, 5]"), [(5, None)]),
        (punctuation(a="(, )"), [(None, None)]),
    ],
    ids=["constants", "wildcard", "everything", "lists", "nothing", "one value", "no ends"],
)
def test_a_punctuation_of_whole_keys_is_a_row_for_each(element, rows):
    assert marked(element, TWO_KEYS) == [(a, b, None, True) for a, b in rows]


@pytest.mark.parametrize(
    "element", [punctuation(a="79", v="1.5"), punctuation(a="[1, 9]", v="1.5"), punctuation(v="{}")]
)
def test_a_punctuation_that_closes_no_key_is_left_out(element):
    assert marked(element + "<record><a>1</a></record>", TWO_KEYS) == [(1, None, None, False)]


def test_a_range_is_refused_with_its_byte_after_what_came_before():
    reading = MarkedRows(ACCESS)
    tables = reading.feed(b"<s><record><sno>1</sno></record>" + punctuation(sno="[1, 5)").encode())
    assert [table.to_pylist() for table in tables] == [[{"sno": 1, "ipaddr": None, "is_end": False}]]
    with pytest.raises(BadInput, match=r"at byte 32, column 'sno': the range \[1, 5\) cannot be one marked"):
        reading.close()


def test_a_punctuation_without_a_key_is_refused_with_its_byte():
    with pytest.raises(InvalidJoin, match=r"at byte 3 is a punctuation, and no key is named"):
        marked(punctuation(sno="1"), RowFormat("record", pa.schema({"sno": pa.int64()})))


def test_a_mistake_in_a_row_keeps_the_marks_of_the_rows_before():
    form = RowFormat("record", pa.schema([pa.field("sno", pa.int64(), nullable=False), ("at", pa.int64())]),
                sequence="at")  # fmt: skip
    reading = MarkedRows(form)
    (table,) = reading.feed(b"<s><record><sno>1</sno></record><record/>")
    assert table.to_pylist() == [{"sno": 1, "at": 3}]
    assert "at byte 32" in str(reading.error)


def test_marker_and_sequence_stand_where_the_schema_says():
    schema = pa.schema({"at": pa.int64(), "end": pa.bool_(), "sno": pa.int64()})
    form = RowFormat("record", schema, key=("sno",), marker="end", sequence="at")
    found = marked("<record><sno>7</sno></record>" + punctuation(sno="{7, 8}"), form)
    assert found == [(3, False, 7), (32, True, 7), (32, True, 8)]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"key": ("title",)}, "key column 'title' is none of"),
        ({"key": ("sno",), "marker": "over"}, r"'over', which marks .* not in the schema \(sno int64"),
        ({"key": ("sno",), "marker": "ipaddr"}, "as bool"),
        ({"sequence": "at"}, "'at', which gives the order"),
        ({"schema": pa.schema([pa.field("sno", pa.int64(), nullable=False), ("is_end", pa.bool_())]),
          "key": ("sno",)}, "declared not null"),
    ],
)  # fmt: skip
def test_what_fits_no_stream_is_refused(wrong, says):
    with pytest.raises(InvalidJoin, match=says):
        RowFormat(**({"record": "record", "schema": ACCESS_SCHEMA} | wrong))


# ---------------------------------------------------------------- pieces of a file


def write_access(path) -> pa.Table:
    streams = NewsStreams(seed=5, items=40, records_per_item=6)
    streams.write_xml(path.with_name("news.xml"), path)
    return pa.concat_tables(streams.access()).combine_chunks()


def pieces(path, limits, form=ACCESS, number=0) -> list[pa.Table]:
    position, tables = Position(), []
    while True:
        found = scan(path, position, size=path.stat().st_size, limit=next(limits))
        if found.error is not None:
            raise found.error
        if found.end != position:
            piece = rows_of(path, form, start=position, end=found.end.byte_offset, number=number)
            tables += piece
        if found.closed:
            return tables
        assert found.end.byte_offset > position.byte_offset
        position = found.end


@pytest.mark.parametrize("seed", range(5))
def test_any_cut_gives_the_rows_of_the_whole(tmp_path, seed):
    path, dice = tmp_path / "access.xml", random.Random(seed)
    whole = write_access(path)
    limits = iter(lambda: dice.choice([1, 60, 300, 2_000]), None)
    assert pa.concat_tables(pieces(path, limits)).combine_chunks().equals(whole)
    assert pa.concat_tables(rows_of(path, ACCESS)).combine_chunks().equals(whole)


def test_the_sequence_is_the_byte_of_the_element_and_ascends_over_files(tmp_path):
    path = tmp_path / "access.xml"
    write_access(path)
    form = RowFormat("record", ACCESS_SCHEMA.append(pa.field("at", pa.int64())), ("sno",), sequence="at")
    text = path.read_bytes()
    found = pa.concat_tables(pieces(path, iter(lambda: 500, None), form, number=2))["at"].to_pylist()
    assert found == sorted(set(found))
    assert all(text[at - 2 * FILE_SPAN :].startswith((b"<record>", b"<punct:record>")) for at in found)


@pytest.mark.parametrize("seed", range(5))
def test_a_file_that_grows_gives_each_row_once_and_as_soon_as_it_is_complete(tmp_path, seed):
    path, dice = tmp_path / "access.xml", random.Random(seed)
    whole = write_access(path)
    text = path.read_bytes()
    position, found, size, closed = Position(), [], 0, False
    while size < len(text):
        size = min(size + dice.choice([1, 5, 40, 400]), len(text))
        path.write_bytes(text[:size])
        stretch = scan(path, position, size=size)
        assert stretch.error is None
        if stretch.end != position:
            found += rows_of(path, ACCESS, start=position, end=stretch.end.byte_offset)
        position, closed = stretch.end, stretch.closed
        complete = text[:size].count(b"</record>") + text[:size].count(b"</punct:record>")
        assert sum(map(len, found)) == complete
    assert closed
    assert pa.concat_tables(found).combine_chunks().equals(whole)


def test_malformed_xml_ends_the_stretch_before_it(tmp_path):
    path = tmp_path / "bad.xml"
    path.write_bytes(b"<s><record><sno>1</sno></record><record></s>")
    found = scan(path, Position(), size=44)
    assert found.end.byte_offset == 32
    assert not found.closed
    assert "bad.xml: The XML stream is not well-formed at byte 42" in str(found.error)
    again = scan(path, found.end, size=44)
    assert again.end == found.end
    assert "byte 42" in str(again.error)


def test_wide_characters_and_a_changed_file_are_refused(tmp_path):
    path = tmp_path / "s.xml"
    path.write_bytes("<s><record><sno>1</sno></record></s>".encode("utf-16"))
    assert "Store it as UTF-8" in str(scan(path, Position(), size=99).error)
    path.write_bytes(b"<s><record><sno>1</sno></record></s>")
    end = scan(path, Position(), size=36).end
    path.write_bytes(b"<s><record><sno>1</sno>    </record></s>")
    with pytest.raises(BadInput, match="has changed: no element ends at byte 32"):
        list(rows_of(path, ACCESS, end=end.byte_offset))


def test_another_encoding_is_kept_from_piece_to_piece(tmp_path):
    path = tmp_path / "latin.xml"
    row = "<record><sno>1</sno><ipaddr>é</ipaddr></record>"
    path.write_bytes(f'<?xml version="1.0" encoding="ISO-8859-1"?><s>{row * 3}</s>'.encode("latin-1"))
    tables = pieces(path, iter(lambda: 1, None))
    assert pa.concat_tables(tables)["ipaddr"].to_pylist() == ["é"] * 3


def test_a_wrong_value_is_told_with_file_and_byte(tmp_path):
    path = tmp_path / "access.xml"
    path.write_bytes(b"<s><record><sno>1</sno></record><record><sno>one</sno></record></s>")
    found = scan(path, Position(), size=67)  # well-formed, so it is for the reader to say
    assert found.closed
    with pytest.raises(BadInput, match=r"access.xml: Element <record> at byte 32, column 'sno': 'one'"):
        list(rows_of(path, ACCESS, end=found.end.byte_offset))
