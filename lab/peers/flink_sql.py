"""The works as Flink SQL: what is joined, and what Flink is told of it.

A query reads its inputs by name, without punctuations. `times` names the column of an input that is its event
time (in milliseconds, in order: `rt` is it as a time with a watermark), `keys` a column that is unique.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class FlinkQuery:
    """A query, and what is declared for it."""

    sql: str
    times: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)  # that are no files of a work: columns and WITH


_MULTI = {"table.optimizer.multi-join.enabled": "true"}
_TIMED = {"person": "date_time", "auction": "date_time", "bid": "date_time"}
_IN_TIME = "B.date_time BETWEEN A.date_time AND A.expires"

_THREE_WAY = FlinkQuery("""
    SELECT s1.k, v1, v2, v3 FROM s1 JOIN s2 ON s1.k = s2.k JOIN s3 ON s1.k = s3.k""")
_Q23 = FlinkQuery(
    """
    SELECT B.bidder, B.price, B.auction, P.name, P.city, A.id, A.category, A.reserve
    FROM bid B JOIN person P ON P.id = B.bidder JOIN auction A ON A.seller = B.bidder""",
    keys={"person": "id"},
)

JOBS: Mapping[str, FlinkQuery] = {
    "two-way": FlinkQuery(
        "SELECT o.k, va, vb FROM `one` o JOIN `many` m ON o.k = m.k",
        keys={"one": "k"},
    ),
    "interval": FlinkQuery(
        """
        SELECT o.k, va, vb FROM `one` o JOIN `many` m
        ON o.k = m.k AND m.rt BETWEEN o.rt AND o.rt + INTERVAL '10' SECOND""",
        times={"one": "t", "many": "t"},
    ),
    "three-way": _THREE_WAY,
    "three-way-multi": replace(_THREE_WAY, settings=_MULTI),
    "lookup": FlinkQuery("""
        SELECT s.id, s.k, m.m FROM (SELECT *, PROCTIME() AS now FROM `stream`) s
        JOIN master FOR SYSTEM_TIME AS OF s.now AS m ON s.k = m.k"""),
    "q3": FlinkQuery(
        """
        SELECT P.name, P.city, P.state, A.id FROM auction A JOIN person P ON A.seller = P.id
        WHERE A.category = 10 AND P.state IN ('or', 'id', 'ca')""",
        keys={"person": "id"},
    ),
    "q4": FlinkQuery(
        f"""
        SELECT category, AVG(final) AS average FROM (
            SELECT A.id, A.category, MAX(B.price) AS final FROM auction A JOIN bid B ON A.id = B.auction
            WHERE {_IN_TIME} GROUP BY A.id, A.category)
        GROUP BY category""",  # noqa: S608
        keys={"auction": "id"},
    ),
    "q7": FlinkQuery(
        """
        SELECT B.auction, B.bidder, B.price, B.date_time FROM bid B JOIN (
            SELECT MAX(price) AS highest, window_time AS last FROM
            TABLE(TUMBLE(TABLE bid, DESCRIPTOR(rt), INTERVAL '10' SECOND))
            GROUP BY window_start, window_end, window_time) W
        ON B.price = W.highest AND B.rt BETWEEN W.last - INTERVAL '9.999' SECOND AND W.last""",
        times=_TIMED,
    ),
    "q8": FlinkQuery(
        """
        SELECT P.id, P.name, 1000 * UNIX_TIMESTAMP(CAST(P.window_start AS STRING)) AS starttime FROM (
            SELECT id, name, window_start, window_end FROM
            TABLE(TUMBLE(TABLE person, DESCRIPTOR(rt), INTERVAL '10' SECOND))
            GROUP BY id, name, window_start, window_end) P
        JOIN (
            SELECT seller, window_start, window_end FROM
            TABLE(TUMBLE(TABLE auction, DESCRIPTOR(rt), INTERVAL '10' SECOND))
            GROUP BY seller, window_start, window_end) A
        ON P.id = A.seller AND P.window_start = A.window_start AND P.window_end = A.window_end""",
        times=_TIMED,
    ),
    "q9": FlinkQuery(
        f"""
        SELECT id, seller, category, expires, bidder, price, bid_time FROM (
            SELECT A.id, A.seller, A.category, A.expires, B.bidder, B.price, B.date_time AS bid_time,
                ROW_NUMBER() OVER (
                    PARTITION BY A.id ORDER BY B.price DESC, B.date_time ASC, B.bidder ASC) AS n
            FROM auction A JOIN bid B ON A.id = B.auction WHERE {_IN_TIME})
        WHERE n = 1""",  # noqa: S608
        keys={"auction": "id"},
    ),
    # The file system is no lookup source of Flink 2: the side table is a versioned one, all of it of 1970.
    "q13": FlinkQuery(
        """
        SELECT B.auction, B.bidder, B.price, B.date_time, S.`value`
        FROM (SELECT *, MOD(auction, CAST(10000 AS BIGINT)) AS side_key FROM bid) B
        JOIN side FOR SYSTEM_TIME AS OF B.rt AS S ON B.side_key = S.`key`""",
        times={"bid": "date_time", "side": "0"},
        keys={"side": "key"},
    ),
    "q20": FlinkQuery(
        """
        SELECT B.auction, B.bidder, B.price, B.channel, B.date_time, A.item_name, A.seller, A.category
        FROM bid B JOIN auction A ON B.auction = A.id WHERE A.category = 10""",
        keys={"auction": "id"},
    ),
    "q23": _Q23,
    "q23-multi": replace(_Q23, settings=_MULTI),
}
