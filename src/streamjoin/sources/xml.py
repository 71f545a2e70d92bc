"""Convert operator: parses an XML stream into tables and punctuations (MJoin, section 2, figures 2 and 3).

    <stream:AccessRecord>
      <record> <sno> 79 </sno> <ipaddr> 64.58.76.224 </ipaddr> </record>           a row
      <punct:record> <sno> 79 </sno> <ipaddr> * </ipaddr> </punct:record>          the punctuation <79, *>
    </stream:AccessRecord>

Records are children of the root; other elements there are ignored. A child with the name of a column gives
that column's value, trimmed of blanks; an absent or empty child is null, an unknown child is ignored. In a
punctuation an absent child is a wildcard, and other text is a pattern in its text form, in which a string
needs no quotes. The papers bind the prefixes `stream:` and `punct:` to no namespace: names are compared as
written.

Order: rows come in the stream's order, and every punctuation after all rows before it. With
`punctuation_order=False` it may come later, which is safe: a key that is closed late only costs state. Rows
are cut into tables of `batch_rows`; without the exact order tables are fewer and larger.

Memory: one batch and one element, never the document. Cost: about 6 µs a row of two columns.

Entity declarations, external entities and external DTDs are refused, since a few lines of them can expand to
gigabytes or read other files.
"""

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TypeAlias
from xml.parsers import expat

import pyarrow as pa

from streamjoin.errors import BadInput, InvalidJoin
from streamjoin.punctuation import ANY, Pattern, Punctuation, parse_pattern
from streamjoin.punctuation.text import BLANKS
from streamjoin.punctuation.values import reader

Element: TypeAlias = Any  # pa.Table or Punctuation
Source: TypeAlias = BinaryIO | Iterable[bytes] | bytes | str | os.PathLike[str]

CHUNK_BYTES = 1 << 16

_OTHER, _ROW, _PUNCTUATION = range(3)
_INCOMPLETE = {  # what expat says of a document of which more may come
    expat.errors.codes[text]
    for text in (
        *(expat.errors.XML_ERROR_NO_ELEMENTS, expat.errors.XML_ERROR_UNCLOSED_TOKEN),
        *(expat.errors.XML_ERROR_PARTIAL_CHAR, expat.errors.XML_ERROR_UNCLOSED_CDATA_SECTION),
    )
}


def convert(
    source: Source,
    *,
    record: str,
    schema: pa.Schema,
    batch_rows: int = 10_000,
    punctuation_order: bool = True,
) -> Iterator[Element]:
    """Tables and punctuations of an XML stream, as they come.

    `source`: a path, a binary file, or an iterable of bytes; it is read as the result is consumed.
    An error in the stream is `BadInput` with the byte offset, raised after everything before it was given:
    also where the document is truncated, empty or no XML, or declares an encoding that is not known.

    >>> figure = b"<s><record><sno> 79 </sno></record><punct:record><sno> 79 </sno></punct:record></s>"
    >>> rows, over = convert([figure], record="record", schema=pa.schema({"sno": pa.int64()}))
    >>> rows["sno"].to_pylist(), over.text()
    ([79], '<79>')
    """
    reading = Convert(record, schema, batch_rows=batch_rows, punctuation_order=punctuation_order)
    return _drive(reading, source)


def _drive(reading: "Convert", source: Source) -> Iterator[Element]:
    for chunk in _chunks(source):
        yield from reading.feed(chunk)
        if reading.error is not None:
            raise reading.error
    yield from reading.end()
    if reading.error is not None:
        raise reading.error


def _chunks(source: Source) -> Iterator[bytes]:
    """The source in chunks of at most `CHUNK_BYTES`, so that no chunk gives many tables at once."""
    if isinstance(source, str | os.PathLike):
        with Path(source).open("rb") as file:
            yield from _chunks(file)
    elif hasattr(source, "read"):
        read = getattr(source, "read1", source.read)  # read1 gives what is there, and does not wait for more
        while chunk := read(CHUNK_BYTES):
            yield chunk
    elif isinstance(source, bytes):
        yield from _chunks(io.BytesIO(source))
    else:
        for given in source:
            for start in range(0, len(given), CHUNK_BYTES):
                yield given[start : start + CHUNK_BYTES]


@dataclass(frozen=True, slots=True)
class Position:
    """Where reading can resume: a byte between two elements, and the root and encoding around it."""

    byte_offset: int = 0
    root: str | None = None
    encoding: str | None = None


class Convert:
    """The incremental parser behind `convert`, which can stop and resume.

    `feed` returns what is complete; rows of an unfinished batch are buffered until `flush` or `close`. An
    error in the stream does not lose what came before it: `feed` returns that first and sets `error`, and the
    next call raises it. `close` raises at once where the document is truncated, empty or no XML: there is no
    next call. What came before it is then what `flush` returns.

    To resume in another process: call `flush()`, store `position`, and there make
    `Convert(record, schema, resume=position)` and feed it from byte `position.byte_offset` of the stream. It
    opens a root element of the same name first, so that the end tag of the root matches; offsets in
    `position` and in messages stay those of the whole stream. A UTF-16 stream can be read but not resumed.

    >>> first = Convert("record", pa.schema({"sno": pa.int64()}))
    >>> stream = b"<s><record><sno>1</sno></record><record><sno>2</sno></record></s>"
    >>> first.feed(stream[:40]), first.flush()[0]["sno"].to_pylist(), first.position
    ([], [1], Position(byte_offset=32, root='s', encoding=None))
    >>> second = Convert("record", pa.schema({"sno": pa.int64()}), resume=first.position)
    >>> second.feed(stream[32:]), second.close()[0]["sno"].to_pylist()
    ([], [2])
    """

    def __init__(
        self,
        record: str,
        schema: pa.Schema,
        *,
        batch_rows: int = 10_000,
        punctuation_order: bool = True,
        resume: Position | None = None,
    ) -> None:
        _check_arguments(record, schema, batch_rows)
        self.error: BadInput | None = None
        self._kinds = {record: _ROW, f"punct:{record}": _PUNCTUATION}
        self._schema = schema
        self._readers = [_reader(field) for field in schema]
        self._columns = {name: at for at, name in enumerate(schema.names)}
        self._required = [at for at, field in enumerate(schema) if not field.nullable]
        self._batch_rows = batch_rows
        self._keep_order = punctuation_order

        self._rows: list[list[Any]] = [[] for _ in schema]  # one list for each column
        self._punctuations: list[Punctuation] = []  # buffered with their batch if order does not matter
        self._ready: list[Element] = []

        self._depth = 0
        self._name, self._kind, self._start = "", _OTHER, 0  # the element under the root
        self._fields: list[Any] = []  # its values so far; None = absent
        self._column = -1  # of the current child; -1 = no column
        self._text: list[str] = []
        self._open_parser(resume or Position())

    # ------------------------------------------------------------ what callers use

    def feed(self, data: bytes) -> list[Element]:
        """Take the next bytes; returns the tables and punctuations they complete."""
        return self._parse(data, final=False)

    def close(self) -> list[Element]:
        """The stream has ended: returns the rest. Raises where the document is not complete.

        >>> reading = Convert("record", pa.schema({"sno": pa.int64()}))
        >>> _ = reading.feed(b"<s><record><sno>1</sno></record>")
        >>> reading.close()
        Traceback (most recent call last):
        streamjoin.errors.BadInput: The XML stream ends at byte 32, inside its root element: ...
        >>> reading.flush()[0]["sno"].to_pylist()
        [1]
        """
        rest = self.end()
        if self.error is not None:
            self._ready = rest
            raise self.error
        return rest

    def end(self) -> list[Element]:
        """As `close`, for callers that look at `error` themselves: returns the rest and sets it."""
        return self._parse(b"", final=True)

    def flush(self) -> list[Element]:
        """Everything before `byte_offset` that was not returned yet."""
        self._cut()
        ready, self._ready = self._ready, []
        return ready

    @property
    def byte_offset(self) -> int:
        """The byte after the last complete element under the root (or after the root's start tag)."""
        return self._offset

    @property
    def position(self) -> Position:
        """Where another `Convert` can resume, once what `flush` returned is stored."""
        if self._offset == 0:
            return Position()
        return Position(self._offset, self._root, self._encoding)

    @property
    def buffered(self) -> int:
        """How many rows and punctuations are buffered."""
        return len(self._rows[0]) + len(self._punctuations)

    # ------------------------------------------------------------ the parser

    def _open_parser(self, start: Position) -> None:
        if (start.encoding or "").upper().startswith("UTF-16"):
            raise BadInput("A UTF-16 stream cannot be resumed. Read it from its start, or store it as UTF-8.")
        self._offset, self._root, self._encoding = start.byte_offset, start.root, start.encoding
        self._offset_due = False  # the end of an element is known when the next token begins
        parser = self._parser = expat.ParserCreate(start.encoding)
        parser.StartElementHandler = self._on_start
        parser.EndElementHandler = self._on_end
        parser.CommentHandler = self._mark
        parser.ProcessingInstructionHandler = self._mark
        parser.XmlDeclHandler = self._on_declaration
        parser.StartDoctypeDeclHandler = self._on_doctype
        parser.EntityDeclHandler = self._refuse_entity
        parser.ExternalEntityRefHandler = self._refuse_entity
        parser.SkippedEntityHandler = self._refuse_entity
        self._shift = start.byte_offset  # byte offsets of the stream less those of the parser
        if start.root is not None:
            tag = f"<{start.root}>".encode(start.encoding or "utf-8")
            self._shift -= len(tag)
            parser.Parse(tag, False)

    def _parse(self, data: bytes, *, final: bool) -> list[Element]:
        if self.error is not None:
            raise self.error
        try:
            self._parser.Parse(data, final)
        except BadInput as mistake:
            self.error = mistake
        except (LookupError, ValueError) as mistake:  # from the codec that the declaration names
            self.error = BadInput(
                f"The XML stream declares an encoding that cannot be read ({mistake}). "
                "Store it as UTF-8, and say so in its XML declaration."
            )
        except expat.ExpatError as mistake:
            self.error = self._malformed(mistake.code)
        else:
            self._mark()
        if final or self.error is not None:
            self._cut()
        ready, self._ready = self._ready, []
        return ready

    def _malformed(self, code: int) -> BadInput:
        at = max(self._parser.ErrorByteIndex + self._shift, self._offset)  # -1 when nothing was fed
        if code in _INCOMPLETE and self._root is None:
            return BadInput(f"The XML stream has no element; it ends at byte {at}. Is it the right file?")
        if code in _INCOMPLETE:
            return BadInput(
                f"The XML stream ends at byte {at}, inside its root element: it is truncated. "
                f"Everything before it was delivered; repair the stream from byte {self._offset} on."
            )
        return BadInput(
            f"The XML stream is not well-formed at byte {at}: {expat.ErrorString(code)}. "
            f"Everything before it was delivered; repair the stream from byte {self._offset} on."
        )

    def _mark(self, *_: Any) -> None:
        """Record the end of the last element, now that the next token has begun."""
        if self._offset_due and (at := self._parser.CurrentByteIndex) >= 0:
            self._offset, self._offset_due = at + self._shift, False
            self._parser.CharacterDataHandler = None

    def _expect_mark(self) -> None:
        self._offset_due = True
        self._parser.CharacterDataHandler = self._mark

    # ------------------------------------------------------------ elements

    def _on_start(self, name: str, _: Any) -> None:
        depth = self._depth
        self._depth = depth + 1
        if depth == 2 and self._kind != _OTHER:
            self._column = self._columns.get(name, -1)
            if self._column >= 0:
                self._text = []
                self._parser.CharacterDataHandler = self._text.append
        elif depth == 1:
            self._mark()
            self._name, self._kind = name, self._kinds.get(name, _OTHER)
            self._start = self._parser.CurrentByteIndex + self._shift
            self._fields = [None] * len(self._rows)
        elif depth == 0:
            self._root = name
            self._expect_mark()

    def _on_end(self, _: str) -> None:
        self._depth = depth = self._depth - 1
        if depth == 2 and self._column >= 0:
            self._parser.CharacterDataHandler = None
            self._take_field("".join(self._text).strip(BLANKS))
            self._column = -1
        elif depth == 1:
            if self._kind == _ROW:
                self._take_row()
            elif self._kind == _PUNCTUATION:
                self._take_punctuation()
            self._expect_mark()
        elif depth == 0:
            self._mark()

    def _take_field(self, text: str) -> None:
        column = self._column
        if self._fields[column] is not None:
            raise self._mistake(column, f"{text!r} is its second value; give each column once")
        try:
            if self._kind == _PUNCTUATION:
                self._fields[column] = self._pattern(text, self._schema.field(column).type)
            elif text:
                self._fields[column] = self._readers[column](text)
        except BadInput as mistake:
            raise self._mistake(column, str(mistake)) from mistake

    def _pattern(self, text: str, dtype: pa.DataType) -> Pattern:
        if not text:
            raise BadInput("'' is not a pattern. Write * for every value, or omit the element.")
        return parse_pattern(text, dtype, bare_strings=True)

    def _take_row(self) -> None:
        for column in self._required:
            if self._fields[column] is None:
                raise self._mistake(column, "'' is no value, and the column is declared not nullable")
        for values, value in zip(self._rows, self._fields, strict=True):
            values.append(value)
        if len(self._rows[0]) + len(self._punctuations) >= self._batch_rows:
            self._cut()

    def _take_punctuation(self) -> None:
        self._punctuations.append(Punctuation(tuple(ANY if each is None else each for each in self._fields)))
        if self._keep_order or self.buffered >= self._batch_rows:
            self._cut()

    def _cut(self) -> None:
        """Move the buffered rows, as one table, and then the punctuations to the output."""
        if self._rows[0]:
            arrays = [
                pa.array(values, field.type) for values, field in zip(self._rows, self._schema, strict=True)
            ]
            self._ready.append(pa.Table.from_arrays(arrays, schema=self._schema))
            self._rows = [[] for _ in self._schema]
        self._ready += self._punctuations
        self._punctuations = []

    def _mistake(self, column: int, what: str) -> BadInput:
        return BadInput(
            f"Element <{self._name}> at byte {self._start}, column {self._schema.names[column]!r}: {what}"
        )

    # ------------------------------------------------------------ what a document may declare

    def _on_declaration(self, _: str, encoding: str | None, __: int) -> None:
        self._encoding = encoding

    def _on_doctype(self, name: str, system: str | None, public: str | None, _: int) -> None:
        if system is not None or public is not None:
            self._refuse_entity(name)

    def _refuse_entity(self, name: str | None, *_: Any) -> NoReturn:
        at = self._parser.CurrentByteIndex + self._shift
        raise BadInput(
            f"The XML stream declares or uses the entity or external DTD {name!r} at byte {at}, which is "
            f"refused for safety. Write the text itself; &lt; &gt; &amp; &quot; &apos; and &#...; are fine."
        )


def _reader(field: pa.Field) -> Any:
    try:
        return reader(field.type)
    except BadInput as error:
        raise InvalidJoin(f"Column {field.name!r} cannot be read from XML. {error}") from error


def _check_arguments(record: str, schema: pa.Schema, batch_rows: int) -> None:
    names: Sequence[str] = schema.names
    if not record or not names or len(set(names)) < len(names) or batch_rows < 1:
        raise InvalidJoin(
            f"convert got record={record!r}, columns {names}, batch_rows={batch_rows}. Give the name of the "
            f"record element, a schema of at least one column without repeated names, and 1 row or more."
        )
