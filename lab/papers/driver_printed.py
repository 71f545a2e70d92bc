"""Tables 4 and 5 of the paper on driver inputs, as printed.

By data set and policy, for periods of 0.1M and 1M time units. The paper has no figures of consumption rate
for I to IV, where all streams have the same selectivity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

Table: TypeAlias = Mapping[str, Mapping[str, tuple[float, float]]]

RUNNING_TIME: Table = {  # Table 4: by that of the timestamp policy
    "I": {"round_robin": (0.985, 1.012), "initial_output": (0.854, 0.791), "output_rate": (0.903, 0.769)},
    "II": {"round_robin": (1.002, 1.002), "initial_output": (0.859, 0.773), "output_rate": (0.840, 0.777)},
    "III": {"round_robin": (1.003, 1.014), "initial_output": (0.871, 0.811), "output_rate": (0.884, 0.815)},
    "IV": {"round_robin": (0.966, 0.997), "initial_output": (0.744, 0.801), "output_rate": (0.755, 0.789)},
    "V": {
        "round_robin": (0.948, 0.927),
        "consumption_rate": (0.863, 0.808),
        "initial_output": (0.882, 0.5),
        "output_rate": (0.906, 0.851),
    },
    "VI": {
        "round_robin": (1.128, 0.926),
        "consumption_rate": (0.785, 0.728),
        "initial_output": (0.785, 0.611),
        "output_rate": (0.956, 0.819),
    },
}
AT_HALF: Table = {  # Table 5: the share of the results at half of the timestamp policy's time
    "I": {
        "timestamp": (0.45, 0.45),
        "round_robin": (0.5, 0.4),
        "initial_output": (0.85, 0.85),
        "output_rate": (0.85, 0.85),
    },
    "II": {
        "timestamp": (0.5, 0.45),
        "round_robin": (0.45, 0.4),
        "initial_output": (0.85, 0.85),
        "output_rate": (0.85, 0.85),
    },
    "III": {
        "timestamp": (0.5, 0.45),
        "round_robin": (0.5, 0.45),
        "initial_output": (0.8, 0.8),
        "output_rate": (0.8, 0.8),
    },
    "IV": {
        "timestamp": (0.5, 0.45),
        "round_robin": (0.55, 0.5),
        "initial_output": (0.65, 0.6),
        "output_rate": (0.6, 0.6),
    },
    "V": {
        "timestamp": (0.5, 0.45),
        "round_robin": (0.85, 0.9),
        "consumption_rate": (0.1, 0.05),
        "initial_output": (0.95, 1.0),
        "output_rate": (0.9, 0.95),
    },
    "VI": {
        "timestamp": (0.5, 0.45),
        "round_robin": (0.65, 0.55),
        "consumption_rate": (0.4, 0.35),
        "initial_output": (0.8, 0.95),
        "output_rate": (0.7, 0.7),
    },
}
AVERAGE_TIME = {"0.1M": 0.832, "1M": 0.714}  # Table 4, initial output size, average of the six sets


def printed(table: Table, name: str, policy: str, period: str) -> float | None:
    """A figure of the paper, where it has one."""
    both = table[name].get(policy)
    return None if both is None else both[0 if period == "0.1M" else 1]
