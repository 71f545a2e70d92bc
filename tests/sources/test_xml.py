"""Convert: the papers' figures, any cutting into bytes, bounded memory, and every kind of bad stream."""

import io
import tracemalloc
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from streamjoin.errors import BadInput, InvalidJoin
from streamjoin.punctuation import Punctuation
from streamjoin.sources.xml import Convert, Element, Position, convert

NEWS = pa.schema({"sno": pa.int64(), "title": pa.string(), "keyword": pa.string()})
ACCESS = pa.schema({"sno": pa.int64(), "ipaddr": pa.string()})

FIGURE_2 = b"""<stream:NewsGeneral>
<info>
<sno> 79 </sno>
<title> Cashless society gets mixed reviews </title>
<keyword> Smart Card </keyword>
</info>
...
</stream:NewsGeneral>
"""

FIGURE_3 = b"""<stream:AccessRecord>
  <record>
    <sno> 79 </sno>
    <ipaddr> 64.58.76.224 </ipaddr>
  </record>
  <record>
    <sno> 81 </sno>
    <ipaddr>207.68.172.234</ipaddr>
  </record>
  <record>
    <sno> 79 </sno>
    <ipaddr> 202.112.39.8 </ipaddr>
  </record>
  <punct:record>
    <sno> 79 </sno>
    <ipaddr> * </ipaddr>
  </punct:record>
</stream:AccessRecord>
"""

# Everything a stream may hold between and inside its elements.
MIXED = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE s [ <!ELEMENT record ANY> ]>
<s at="1"><!-- a comment -->
<record id="1"><sno>1</sno><ipaddr>é &amp; &#x3c;b&gt; <![CDATA[<raw>]]></ipaddr></record ><record/>
<?pi here?><other><record><sno>9</sno></record></other>
<record><more><sno>7</sno></more><ipaddr>a<b>c</b>d</ipaddr><sno>+2</sno></record>
text <punct:record/> <punct:record><sno>[1, 5)</sno><ipaddr>{"a", "b"}</ipaddr></punct:record>
<record><sno>3</sno><ipaddr>  </ipaddr></record>
</s><!-- the end -->""".encode()


def plain(elements: Iterable[Element]) -> list:
    """Rows as tuples and punctuations as text, without the cuts between tables."""
    out: list = []
    for element in elements:
        if isinstance(element, Punctuation):
            out.append(element.text())
        else:
            out += zip(*(column.to_pylist() for column in element.columns), strict=True)
    return out


def read(stream: bytes, **options) -> list:
    return plain(convert([stream], **({"record": "record", "schema": ACCESS} | options)))


def read_until_error(stream: bytes, **options) -> tuple[list, str]:
    elements = convert([stream], **({"record": "record", "schema": ACCESS} | options))
    came: list = []

    def drain() -> None:
        for element in elements:
            came.extend(plain([element]))

    with pytest.raises(BadInput) as refused:
        drain()
    return came, str(refused.value)


def access(*rows: str) -> bytes:
    return ("<s>" + "".join(rows) + "</s>").encode()


def row(sno: object, ipaddr: str = "x") -> str:
    return f"<record><sno>{sno}</sno><ipaddr>{ipaddr}</ipaddr></record>"


# ---------------------------------------------------------------- what is read


def test_figure_2():
    assert read(FIGURE_2, record="info", schema=NEWS) == [
        (79, "Cashless society gets mixed reviews", "Smart Card")
    ]


def test_figure_3():
    assert read(FIGURE_3) == [(79, "64.58.76.224"), (81, "207.68.172.234"), (79, "202.112.39.8"), "<79, *>"]


MIXED_ANSWER = [
    (1, "é & <b> <raw>"),
    (None, None),
    (2, "acd"),
    "<*, *>",
    '<[1, 5), {"a", "b"}>',
    (3, None),
]


def test_whatever_else_a_stream_may_hold():
    assert read(MIXED) == MIXED_ANSWER


def test_values_of_every_column_type_and_bare_patterns():
    schema = pa.schema(
        {
            "d": pa.decimal128(10, 2),
            "t": pa.timestamp("us", tz="UTC"),
            "b": pa.bool_(),
            "x": pa.binary(),
            "f": pa.float64(),
            "k": pa.dictionary(pa.int32(), pa.string()),
        }
    )
    inside = "<d>12.5</d><t>2026-11-15T10:00:00+01:00</t><b>true</b><x>0x00ff</x><f>1e3</f><k> a b </k>"
    stream = f"<s><r>{inside}</r><punct:r>{inside}</punct:r></s>".encode()
    rows, over = convert([stream], record="r", schema=schema)
    value = (Decimal("12.50"), datetime(2026, 11, 15, 9, tzinfo=UTC), True, b"\x00\xff", 1000.0, "a b")
    assert rows.schema == schema
    assert plain([rows]) == [value]
    assert over.matches(value)
    assert over.text() == '<12.50, 2026-11-15T09:00:00+00:00, true, 0x00ff, 1000.0, "a b">'


@pytest.mark.parametrize("kind", ["path", "text path", "file", "iterable", "bytes"])
def test_a_source_may_be_a_path_a_file_an_iterable_or_bytes(tmp_path, kind):
    path = tmp_path / "stream.xml"
    path.write_bytes(FIGURE_3)
    sources = {"path": path, "text path": str(path), "file": io.BytesIO(FIGURE_3), "iterable": [FIGURE_3]}
    elements = convert(sources.get(kind, FIGURE_3), record="record", schema=ACCESS)
    assert plain(elements) == read(FIGURE_3)


def test_another_encoding_is_read_as_declared():
    stream = '<?xml version="1.0" encoding="ISO-8859-1"?>' + access(row(1, "é")).decode()
    assert read(stream.encode("latin-1")) == [(1, "é")]
    assert read(access(row(1, "é")).decode().encode("utf-16")) == [(1, "é")]


# ---------------------------------------------------------------- cuts


@pytest.mark.parametrize("stream", [FIGURE_3, MIXED], ids=["figure 3", "mixed"])
def test_any_cut_of_the_bytes_gives_the_same(stream):
    whole = read(stream)
    for at in range(len(stream) + 1):
        assert plain(convert([stream[:at], stream[at:]], record="record", schema=ACCESS)) == whole
    each_byte = (stream[at : at + 1] for at in range(len(stream)))
    assert plain(convert(each_byte, record="record", schema=ACCESS)) == whole


def sizes(elements: Iterable[Element]) -> list:
    return [e.text() if isinstance(e, Punctuation) else e.num_rows for e in elements]


def test_tables_are_cut_at_the_batch_size_and_at_punctuations():
    over = "<punct:record><sno>1</sno></punct:record>"
    stream = access(row(1), row(1), row(1), over, row(2), over, row(3))
    options = {"record": "record", "schema": ACCESS}
    assert sizes(convert([stream], **options)) == [3, "<1, *>", 1, "<1, *>", 1]
    assert sizes(convert([stream], **options, batch_rows=2)) == [2, 1, "<1, *>", 1, "<1, *>", 1]
    assert sizes(convert([stream], **options, punctuation_order=False)) == [5, "<1, *>", "<1, *>"]
    assert sizes(convert([stream], **options, punctuation_order=False, batch_rows=4)) == [
        3,
        "<1, *>",
        2,
        "<1, *>",
    ]


def test_memory_holds_one_batch_whatever_the_length_of_the_stream():
    rows, longest, given = 60_000, 0, 0

    def endless() -> Iterator[bytes]:
        nonlocal given
        yield b"<s>"
        for sno in range(rows):
            given += 1
            yield row(sno, "64.58.76.224 " * 5).encode()
        yield b"</s>"

    came = 0
    tracemalloc.start()
    for table in convert(endless(), record="record", schema=ACCESS, batch_rows=500):
        came += table.num_rows
        longest = max(longest, table.num_rows)
        assert given - came <= 1  # nothing is read ahead
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (came, longest) == (rows, 500)
    assert peak < 2_000_000  # the document has more than 6 MB


def test_punctuations_alone_do_not_pile_up_either():
    reading = Convert("record", ACCESS, batch_rows=100, punctuation_order=False)
    reading.feed(b"<s>")
    for _ in range(1_000):
        reading.feed(b"<punct:record><sno>1</sno></punct:record>")
        assert reading.buffered <= 100


# ---------------------------------------------------------------- stop and go on


@pytest.mark.parametrize("stream", [FIGURE_3, MIXED], ids=["figure 3", "mixed"])
def test_stopped_after_any_byte_and_taken_up_again_gives_the_same(stream):
    whole = read(stream)
    for at in range(len(stream) + 1):
        first = Convert("record", ACCESS)
        came = first.feed(stream[:at]) + first.flush()
        position = first.position
        second = Convert("record", ACCESS, resume=position)
        came += second.feed(stream[position.byte_offset :]) + second.close()
        assert second.error is None
        assert plain(came) == whole


def test_the_offset_is_the_end_of_the_last_complete_element():
    start, one, two = b"<s>", row(1).encode(), b"<record />"
    reading = Convert("record", ACCESS)
    assert reading.position == Position()
    for piece, offset in [
        (start, 3),
        (one[:-1], 3),
        (one[-1:], 3 + len(one)),
        (b" \n <!-- x -->", 3 + len(one)),
        (two, 3 + len(one) + 13 + len(two)),
        (b"</s>", 3 + len(one) + 13 + len(two)),
    ]:
        reading.feed(piece)
        assert reading.byte_offset == offset
    assert reading.position.root == "s"


def test_a_resumed_reader_keeps_encoding_and_offsets_of_the_whole_stream():
    head = '<?xml version="1.0" encoding="ISO-8859-1"?><s>'
    stream = (head + row(1, "é") + row(2, "é") + row("wrong") + "</s>").encode("latin-1")
    first = Convert("record", ACCESS)
    first.feed(stream[: len(head) + len(row(1, "é"))])
    assert first.position == Position(len(head) + len(row(1, "é")), "s", "ISO-8859-1")
    second = Convert("record", ACCESS, resume=first.position)
    assert plain(second.feed(stream[first.byte_offset :])) == [(2, "é")]
    assert f"at byte {stream.index(b'<record><sno>wrong')}" in str(second.error)


def test_a_utf_16_stream_is_not_resumed():
    with pytest.raises(BadInput, match="store it as UTF-8"):
        Convert("record", ACCESS, resume=Position(10, "s", "UTF-16"))


# ---------------------------------------------------------------- bad streams


def test_what_came_before_a_break_is_given_first():
    stream = access(row(1), row(2)).replace(b"</s>", b"<record><sno>3</wrong>")
    before, message = read_until_error(stream)
    assert before == [(1, "x"), (2, "x")]
    assert f"not well-formed at byte {stream.index(b'wrong')}: mismatched tag" in message
    assert f"repair the stream from byte {stream.index(b'<record><sno>3')} on" in message


@pytest.mark.parametrize(
    ("stream", "came", "says"),
    [
        (b"", [], "has no element; it ends at byte 0"),
        (b"not xml", [], "byte 0: syntax error"),
        (access(row(1))[:-4], [(1, "x")], "ends at byte 50, inside its root"),
        (access(row(1))[:-2], [(1, "x")], "ends at byte 50, inside its root"),
        (access(row(1)) + b"<t/>", [(1, "x")], "junk after document element"),
        (access(row(1), row(2, "\x01")), [(1, "x")], "not well-formed"),
        (access(row(1), "<record><sno>&undefined;</sno></record>"), [(1, "x")], "undefined entity"),
        (b"<s>" + row(1).encode() + b"\xff</s>", [(1, "x")], "not well-formed"),
    ],
)
def test_malformed_xml(stream, came, says):
    before, message = read_until_error(stream)
    assert before == came
    assert says in message
    assert "at byte " in message


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (row("seventy"), ["<record>", "'sno'", "'seventy'", "int64", "such as 180"]),
        (row("1.5"), ["<record>", "'sno'", "'1.5'"]),
        (row(2**63), ["<record>", "'sno'", f"'{2**63}'"]),
        ("<record><sno>1</sno><sno>2</sno></record>", ["<record>", "'sno'", "'2'", "each column once"]),
        ("<punct:record><sno>x</sno></punct:record>", ["<punct:record>", "'sno'", "'x'", "such as 180"]),
        ("<punct:record><sno>[1, 2</sno></punct:record>", ["<punct:record>", "'[1, 2'", "']' or ')'"]),
        ("<punct:record><sno> </sno></punct:record>", ["<punct:record>", "'sno'", "Write * for every value"]),
    ],
)
def test_a_wrong_value_names_element_column_text_and_byte(bad, says):
    stream = access(row(1), bad, row(3))
    before, message = read_until_error(stream)
    assert before == [(1, "x")]
    for part in [*says, f"at byte {stream.index(bad.encode())}"]:
        assert part in message


def test_a_column_that_is_not_nullable_must_be_there():
    schema = pa.schema([pa.field("sno", pa.int64(), nullable=False), ("ipaddr", pa.string())])
    before, message = read_until_error(access(row(1, ""), row("")), schema=schema)
    assert before == [(1, None)]
    assert "'sno'" in message
    assert "not nullable" in message


@pytest.mark.parametrize(
    "declared",
    [
        '<!DOCTYPE s [<!ENTITY a "b">]>',
        '<!DOCTYPE s [<!ENTITY a "b"><!ENTITY c "&a;&a;">]>',
        '<!DOCTYPE s [<!ENTITY % p "x">]>',
        '<!DOCTYPE s [<!ENTITY a SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE s SYSTEM "http://example.com/s.dtd">',
        '<!DOCTYPE s PUBLIC "-//X//Y" "s.dtd">',
        "<!DOCTYPE s [ %p; ]>",
    ],
)
def test_entities_and_external_parts_are_refused(declared):
    stream = declared.encode() + access("<record><sno>1</sno><ipaddr>&a;</ipaddr></record>")
    before, message = read_until_error(stream)
    assert before == []
    assert "refused for safety" in message
    assert "at byte " in message


def test_an_external_dtd_is_refused_although_nothing_of_it_is_used():
    before, message = read_until_error(b'<!DOCTYPE s SYSTEM "s.dtd">' + access(row(1)))
    assert before == []
    assert "refused for safety" in message


def test_after_a_mistake_every_call_says_it_again():
    reading = Convert("record", ACCESS)
    assert plain(reading.feed(access(row(1), row("x")))) == [(1, "x")]
    for again in (lambda: reading.feed(b"more"), reading.close):
        with pytest.raises(BadInput, match="'x' is not a value of type int64"):
            again()
    assert reading.byte_offset == len("<s>" + row(1))


@pytest.mark.parametrize(
    "wrong",
    [
        {"record": ""},
        {"schema": pa.schema([])},
        {"schema": pa.schema([("a", pa.int64()), ("a", pa.int64())])},
        {"schema": pa.schema({"a": pa.list_(pa.int64())})},
        {"batch_rows": 0},
    ],
)
def test_arguments_that_cannot_work_are_refused_at_once(wrong):
    with pytest.raises(InvalidJoin):
        convert([], **({"record": "record", "schema": ACCESS} | wrong))
