"""Joins over live streams that know when to let go of their state."""

from streamjoin.api import Joined, join, session, stream
from streamjoin.enriched import Enriched, master
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
from streamjoin.local import LocalRun
from streamjoin.metadata import closing, clustered, control, marked, ordered
from streamjoin.operators.drivers import (
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
from streamjoin.operators.orders import Sequential, ValueOriented
from streamjoin.operators.purging import NoPurge, PurgeEvery, PurgeImmediately
from streamjoin.operators.spilling import SpillAbove
from streamjoin.plan.cost import Rate
from streamjoin.plan.safety import UnboundedState
from streamjoin.plan.semi import EmptyMaster
from streamjoin.punctuation import ANY, Punctuation, between
from streamjoin.semi_local import SemiRun
from streamjoin.sources.postgresql import postgresql
from streamjoin.sources.sqlite import sqlite

__version__ = "0.1.0.dev0"

__all__ = [
    "ANY",
    "Adaptive",
    "BadInput",
    "ConsumptionRate",
    "EmptyMaster",
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
    "PunctuationViolated",
    "PurgeEvery",
    "PurgeImmediately",
    "RandomInput",
    "Rate",
    "RoundRobin",
    "SemiRun",
    "Sequential",
    "SourceLost",
    "SpillAbove",
    "StateFormatError",
    "StreamJoinError",
    "Timestamp",
    "UnboundedState",
    "ValueOriented",
    "between",
    "closing",
    "clustered",
    "control",
    "join",
    "marked",
    "master",
    "ordered",
    "postgresql",
    "session",
    "sqlite",
    "stream",
]
