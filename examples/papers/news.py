"""MJoin, figure 1(b): two XML streams in, Convert, join on sno, `<data>` elements out.

    python examples/papers/news.py

A news item comes once (`unique`); a `<punct:record>` of the access records closes its number, which purges
the item. The leaves of the plan are the Convert operators (the source `streamjoin_xml`), its root is the
paper's `<data> $ng/keyword, $ar/ipaddr </data>`.
"""

import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamjoin as sj
from streamjoin.demo.spark_sources.registry import register

NEWS = """<stream:NewsGeneral>
<info><sno> 79 </sno><title> Cashless society gets mixed reviews </title>
<keyword> Smart Card </keyword></info>
<info><sno> 80 </sno><title> A second item </title><keyword> Schools </keyword></info>
</stream:NewsGeneral>
"""
ACCESS = """<stream:AccessRecord>
<record><sno> 79 </sno><ipaddr> 64.58.76.224 </ipaddr></record>
<record><sno> 79 </sno><ipaddr> 207.68.172.234 </ipaddr></record>
<record><sno> 81 </sno><ipaddr> 10.0.0.1 </ipaddr></record>
<record><sno> 79 </sno><ipaddr> 202.112.39.8 </ipaddr></record>
<punct:record><sno> 79 </sno><ipaddr> * </ipaddr></punct:record>
<record><sno> 80 </sno><ipaddr> 10.0.0.2 </ipaddr></record>
</stream:AccessRecord>
"""


def convert(spark: SparkSession, path: str, record: str, columns: str, key: str | None = None) -> DataFrame:
    """The Convert operator: an XML stream as tuples; with a key, its punctuations as marked rows."""
    read = spark.readStream.format("streamjoin_xml").options(record=record, columns=columns)
    return (read if key is None else read.option("key", key)).load(path)


def plan(news: DataFrame, access: DataFrame) -> sj.Joined:
    """The join of figure 1(b), one-to-many with punctuations."""
    return sj.join(
        sj.stream(news, name="news", key="sno", unique=True, columns=["keyword"]),
        sj.stream(access, name="access", key="sno", punctuation=sj.marked("is_end"), columns=["ipaddr"]),
        name="news",
        operator="mjoin_1np",
        goal="memory",  # the paper's rule 2: a punctuation purges at once
    )


def as_data(rows: DataFrame) -> DataFrame:
    """RETURN <data> $ng/keyword, $ar/ipaddr </data>: one element a row."""
    return rows.select(F.to_xml(F.struct("keyword", "ipaddr"), {"rowTag": "data"}).alias("value"))


def query(spark: SparkSession, news_path: str, access_path: str) -> DataFrame:
    news = convert(spark, news_path, "info", "sno long, title string, keyword string")
    access = convert(spark, access_path, "record", "sno long, ipaddr string", key="sno")
    return as_data(plan(news, access).dataframe())


def main() -> None:
    spark = sj.session(log="out/spark.log")
    register(spark)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("news.xml", NEWS), ("access.xml", ACCESS)):
            (Path(folder) / name).write_text(text)
        elements = query(spark, f"{folder}/news.xml", f"{folder}/access.xml")
        stream = elements.writeStream.format("console").option("truncate", value=False)
        stream.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
