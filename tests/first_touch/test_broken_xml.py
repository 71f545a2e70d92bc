"""A document that is truncated, empty, no XML or of an unknown encoding raises, however it is read."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamjoin.errors import BadInput
from streamjoin.sources.xml import Convert, convert
from streamjoin.sources.xml_rows import RowFormat, rows_of, scan

SCHEMA = pa.schema({"sno": pa.int64()})
ROW = b"<record><sno>1</sno></record>"
DECLARED = b'<?xml version="1.0" encoding="%s"?><s>' + ROW + b"</s>"
BROKEN = [
    pytest.param(b"<s>" + ROW, "ends at byte 32, inside its root element", [1], id="truncated"),
    pytest.param(b"<s>" + ROW + b"<rec", "repair the stream from byte 32", [1], id="inside a tag"),
    pytest.param(b"", "has no element", [], id="empty"),
    pytest.param(b" \n", "has no element", [], id="blank"),
    pytest.param(b"sno,title\n1,x\n", "not well-formed at byte 0", [], id="text"),
    pytest.param(b'{"sno": 1}', "not well-formed at byte 0", [], id="json"),
    pytest.param(DECLARED % b"klingon", "Store it as UTF-8", [], id="unknown encoding"),
    pytest.param(DECLARED % b"gbk", "Store it as UTF-8", [], id="unsupported encoding"),
]


def numbers(tables: list[Any]) -> list[int]:
    return [value for table in tables for value in table["sno"].to_pylist()]


@pytest.mark.parametrize(("document", "says", "before"), BROKEN)
@pytest.mark.parametrize("step", [1, 1000])
def test_convert_gives_what_came_before_and_raises(
    document: bytes, says: str, before: list[int], step: int
) -> None:
    chunks = [document[at : at + step] for at in range(0, len(document), step)]
    came: list[Any] = []
    with pytest.raises(BadInput, match=says):  # noqa: PT012  # tables come until it raises
        for table in convert(iter(chunks), record="record", schema=SCHEMA):
            came.append(table)  # noqa: PERF402  # what comes before the error
    assert numbers(came) == before


@pytest.mark.parametrize(("document", "says", "before"), BROKEN)
def test_feed_and_close_raise_and_flush_has_the_rest(document: bytes, says: str, before: list[int]) -> None:
    reading = Convert("record", SCHEMA)
    came = reading.feed(document)
    with pytest.raises(BadInput, match=says):
        reading.close()
    assert numbers(came + reading.flush()) == before


@pytest.mark.parametrize(("document", "says", "before"), BROKEN)
def test_a_whole_file_is_refused_with_its_name(
    document: bytes, says: str, before: list[int], tmp_path: Path
) -> None:
    """As the Spark source reads it in batch."""
    file = tmp_path / "access.xml"
    file.write_bytes(document)
    with pytest.raises(BadInput, match=f"access.xml: .*{says}"):
        list(rows_of(file, RowFormat("record", SCHEMA)))


@pytest.mark.parametrize("document", [b"sno,title\n1,x\n", b"hello", b'{"sno": 1}', DECLARED % b"klingon"])
def test_a_growing_file_that_cannot_become_xml_is_refused(document: bytes, tmp_path: Path) -> None:
    """As the Spark source reads it in streaming."""
    file = tmp_path / "access.xml"
    file.write_bytes(document)
    error = scan(file, Convert("record", SCHEMA).position, size=len(document)).error
    assert error is not None
    assert "access.xml: " in str(error)


@pytest.mark.parametrize("document", [b"", b" ", b"\xef\xbb\xbf", b"<", b"<?xml", b"<s>" + ROW + b"<rec"])
def test_a_growing_file_may_be_incomplete(document: bytes, tmp_path: Path) -> None:
    file = tmp_path / "access.xml"
    file.write_bytes(document)
    assert scan(file, Convert("record", SCHEMA).position, size=len(document)).error is None
