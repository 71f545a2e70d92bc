"""What the paper on driver inputs says of its figures 6 to 8 and Tables 4 and 5, as statements."""

from __future__ import annotations

from lab.papers.driver_runs import BASE, FIXED
from lab.papers.driver_statement import BOTH, PaperStatement, beside, lookups, off_one, produced, time

ALIKE, BURSTY = ("I", "II", "III"), ("IV", "V", "VI")
BY_OUTPUT = ("initial_output", "output_rate")

# What each figure says

FIGURE_6 = (
    PaperStatement(
        "driver-6",
        "round-robin",
        "sets I to III, round robin and timestamp finish at the same time: mean CPU time, off 1 "
        "(the paper's Table 4: at most 0.015)",
        "<=",
        0.015,
        time,
        ALIKE,
        ("round_robin",),
        over=off_one,
        unit="share",
    ),
    PaperStatement(
        "driver-6",
        "round-robin-lookups",
        "the same by lookups ('deviation is less than 0.2 %')",
        "<=",
        0.002,
        lookups,
        ALIKE,
        ("round_robin",),
        over=off_one,
        unit="share",
    ),
    PaperStatement(
        "driver-6",
        "early",
        "sets I to III, initial output size and output rate: results there at 30 % of timestamp's time, mean",
        ">=",
        0.6,
        produced(0.3),
        ALIKE,
        BY_OUTPUT,
        unit="share",
    ),
    PaperStatement(
        "driver-6",
        "time",
        "sets I to III, the two policies need about 20 % less CPU time than timestamp, mean",
        "<=",
        0.8,
        time,
        ALIKE,
        BY_OUTPUT,
    ),
    PaperStatement(
        "driver-6",
        "similar",
        "initial output size and output rate behave alike: the most their shares at half time differ "
        "(the paper's Table 5: not at all, in steps of 0.05)",
        "<=",
        0.05,
        lambda found, policy: abs(found.policies[policy].at(0.5) - found.policies["output_rate"].at(0.5)),
        ALIKE,
        ("initial_output",),
        over=max,
        unit="share",
    ),
)
FIGURE_7 = (
    *(
        PaperStatement(
            "driver-7",
            f"IV-{period}",
            f"set IV, period {period}: initial output size and output rate lower the CPU time by about "
            f"{1 - target:.0%}",
            "<=",
            target,
            time,
            ("IV",),
            BY_OUTPUT,
            (period,),
        )
        for period, target in (("0.1M", 0.75), ("1M", 0.8))
    ),
    PaperStatement(
        "driver-7",
        "IV-first-half",
        "set IV: they gain more in the first half of the batches than in the second (CPU time of the first, "
        "by timestamp's, over the same of the second)",
        "<",
        1,
        lambda found, policy: found.time(policy, "first half") / found.time(policy, "second half"),
        ("IV",),
        BY_OUTPUT,
    ),
    PaperStatement(
        "driver-7",
        "IV-round-robin",
        "set IV: round robin is slightly faster than timestamp in the first half",
        "<",
        1,
        lambda found, policy: found.time(policy, "first half"),
        ("IV",),
        ("round_robin",),
    ),
    PaperStatement(
        "driver-7",
        "V-early",
        "set V: initial output size and output rate have 80 % of the results in 20 to 30 % of the time: "
        "share at 30 %",
        ">=",
        0.8,
        produced(0.3),
        ("V",),
        BY_OUTPUT,
        unit="share",
    ),
    PaperStatement(
        "driver-7",
        "V-early-best",
        "set V: that is more than any other policy of the paper has then (the least of the two by the best "
        "other)",
        ">",
        1,
        lambda found, policy: (
            found.policies[policy].at(0.3)
            / max(found.policies[one].at(0.3) for one in FIXED if one not in BY_OUTPUT)
        ),
        ("V",),
        BY_OUTPUT,
        over=min,
    ),
)
FIGURE_8 = (
    PaperStatement(
        "driver-8",
        "V-consumption-early",
        "set V: consumption rate has produced 'only a very small portion' at half of timestamp's time "
        "(the paper's Table 5: 0.1 and 0.05)",
        "<=",
        0.1,
        produced(0.5),
        ("V",),
        ("consumption_rate",),
        over=max,
        unit="share",
    ),
    PaperStatement(
        "driver-8",
        "V-consumption-time",
        "set V: and still needs less CPU time than timestamp (the paper's Table 4: mean of the periods)",
        "<=",
        0.836,
        time,
        ("V",),
        ("consumption_rate",),
    ),
    PaperStatement(
        "driver-8",
        "V-half",
        "set V, period 1M: initial output size needs half of timestamp's CPU time",
        "<=",
        0.5,
        time,
        ("V",),
        ("initial_output",),
        ("1M",),
    ),
    PaperStatement(
        "driver-8",
        "least",
        "sets V and VI, period 1M: initial output size has the lowest CPU time (by the best other policy of "
        "the paper)",
        "<=",
        1,
        beside(time, [one for one in FIXED if one != "initial_output"]),
        ("V", "VI"),
        ("initial_output",),
        ("1M",),
        over=max,
    ),
    PaperStatement(
        "driver-8",
        "VI-timestamp",
        "set VI: timestamp needs more CPU time than each of the three proposed policies (the worst of them)",
        "<",
        1,
        time,
        ("VI",),
        ("consumption_rate", *BY_OUTPUT),
        over=max,
    ),
    PaperStatement(
        "driver-8",
        "VI-early",
        "set VI: results at half of timestamp's time, initial output size by timestamp "
        "(the paper's Table 5: 1.6 and 2.1)",
        ">=",
        1.6,
        lambda found, policy: found.policies[policy].at(0.5) / found.policies[BASE].at(0.5),
        ("VI",),
        ("initial_output",),
    ),
)
ALL = (*ALIKE, *BURSTY)
_SELECTIVE = ("V", "VI")  # where the paper has figures of consumption rate
_AVERAGES_4 = {
    "initial_output": (ALL, 0.832, 0.714),
    "output_rate": (ALL, 0.874, 0.803),
    "consumption_rate": (_SELECTIVE, 0.824, 0.768),
}
_AVERAGES_5 = {"initial_output": (0.82, 0.84), "output_rate": (0.78, 0.79)}
TABLE_4 = (
    *(
        PaperStatement(
            "driver-table-4",
            f"{policy.replace('_', '-')}-{period}",
            f"CPU time of {policy.replace('_', ' ')} by timestamp's, period {period}: average",
            "<=",
            target,
            time,
            sets,
            (policy,),
            (period,),
            average=True,
        )
        for policy, (sets, *targets) in _AVERAGES_4.items()
        for period, target in zip(BOTH, targets, strict=True)
    ),
    PaperStatement(
        "driver-table-4",
        "up-to-half",
        "initial output size lowers the CPU time by up to 50 %: the best case",
        "<=",
        0.5,
        time,
        ALL,
        ("initial_output",),
        over=min,
    ),
    PaperStatement(
        "driver-table-4",
        "round-robin-bursty",
        "even round robin is faster than timestamp with bursts and large batches (IV to VI, 1M: average)",
        "<",
        1,
        time,
        BURSTY,
        ("round_robin",),
        ("1M",),
    ),
    PaperStatement(
        "driver-table-4",
        "probes",
        "timestamp is slower as it needs more probes: lookups of initial output size by timestamp's, average",
        "<",
        1,
        lookups,
        ALL,
        ("initial_output",),
    ),
)
TABLE_5 = (
    *(
        PaperStatement(
            "driver-table-5",
            f"{policy.replace('_', '-')}-{period}",
            f"results of {policy.replace('_', ' ')} at half of timestamp's time, period {period}: average",
            ">=",
            target,
            produced(0.5),
            ALL,
            (policy,),
            (period,),
            unit="share",
            average=True,
        )
        for policy, targets in _AVERAGES_5.items()
        for period, target in zip(BOTH, targets, strict=True)
    ),
    PaperStatement(
        "driver-table-5",
        "consumption",
        "consumption rate has the fewest results at half time: average of V and VI (the paper: 0.25 and 0.2)",
        "<=",
        0.25,
        produced(0.5),
        _SELECTIVE,
        ("consumption_rate",),
        unit="share",
    ),
)
