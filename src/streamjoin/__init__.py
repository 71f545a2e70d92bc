"""Stream-stream joins for PySpark with bounded state.

State is evicted by unique keys, punctuations and arrival order, not only by watermark. Importing this needs
numpy, pandas and pyarrow; Spark, the command line and pictures are extras, loaded when they are used.
"""

from streamjoin.api.enrich import Enriched, enrich, table
from streamjoin.api.join import Joined, join, progress, session, stream
from streamjoin.declare.arrival import clustered, ordered
from streamjoin.declare.closing import closing
from streamjoin.declare.control import control
from streamjoin.declare.marked import marked
from streamjoin.declare.punctuation_source import ClosingRows, Condition, PunctuationSource
from streamjoin.enrich.tables.postgresql import postgresql
from streamjoin.enrich.tables.source import TableSource
from streamjoin.enrich.tables.sqlite import sqlite
from streamjoin.errors import (
    BadInput,
    InvalidJoin,
    InvariantBroken,
    LimitExceeded,
    PunctuationViolated,
    SourceLost,
    StateFormatError,
    StreamJoinError,
)
from streamjoin.join.notices import DataInControlRow
from streamjoin.join.strategies.driver import (
    Adaptive,
    ConsumptionRate,
    FollowClusters,
    InitialOutput,
    OutputRate,
    Priority,
    RandomInput,
    RoundRobin,
    Timestamp,
)
from streamjoin.join.strategies.order import Sequential, ValueOriented
from streamjoin.join.strategies.purge import NoPurge, PurgeEvery, PurgeImmediately
from streamjoin.join.strategies.spill import SpillAbove
from streamjoin.local.enrich import EnrichRun
from streamjoin.local.join import LocalRun
from streamjoin.plan.bounds import UnboundedState
from streamjoin.plan.cost import Rate
from streamjoin.plan.enrich.planner import EmptyTable
from streamjoin.punctuation import ANY, Punctuation, between

__version__ = "0.1.0.dev0"  # the only place: the package, the command and the lab read it here

__all__ = [
    "ANY",
    "Adaptive",
    "BadInput",
    "ClosingRows",
    "Condition",
    "ConsumptionRate",
    "DataInControlRow",
    "EmptyTable",
    "EnrichRun",
    "Enriched",
    "FollowClusters",
    "InitialOutput",
    "InvalidJoin",
    "InvariantBroken",
    "Joined",
    "LimitExceeded",
    "LocalRun",
    "NoPurge",
    "OutputRate",
    "Priority",
    "Punctuation",
    "PunctuationSource",
    "PunctuationViolated",
    "PurgeEvery",
    "PurgeImmediately",
    "RandomInput",
    "Rate",
    "RoundRobin",
    "Sequential",
    "SourceLost",
    "SpillAbove",
    "StateFormatError",
    "StreamJoinError",
    "TableSource",
    "Timestamp",
    "UnboundedState",
    "ValueOriented",
    "between",
    "closing",
    "clustered",
    "control",
    "enrich",
    "join",
    "marked",
    "ordered",
    "postgresql",
    "progress",
    "session",
    "sqlite",
    "stream",
    "table",
]
