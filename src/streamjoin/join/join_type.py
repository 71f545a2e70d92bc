"""Join types: which tuples leave as results, and when.

A matched combination is a result of inner and outer joins. A tuple of a *preserved* input that
took part in none leaves padded with nulls (or, for left anti, by itself) as soon as nothing can
match it any more: its key has no partner left and never will, or its window has passed. A left
semi or left anti join forgets a tuple of its left input at its first match; a right one is the left one
of the inputs in reverse.

With more than two inputs, `left` keeps every tuple of the first input: it stands in complete
results, or once, padded on all other inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamjoin.errors import InvalidJoin


@dataclass(frozen=True, slots=True)
class JoinType:
    """What a join gives. `preserved` are the inputs whose unmatched tuples are results."""

    name: str
    preserved: tuple[int, ...] = ()
    combinations: bool = True  # matched combinations are results
    first_match: bool = False  # a left tuple that has matched once is a result, and forgotten
    any_width: bool = False  # for more than two inputs
    reversed: bool = False  # the operator takes the inputs in reverse order: its left one is declared last

    @property
    def forgets_matched(self) -> bool:
        """A left tuple is evicted at its first match."""
        return not self.combinations

    @property
    def tracked(self) -> tuple[int, ...]:
        """The inputs of which must be known which tuples have matched."""
        return (0,) if self.forgets_matched else self.preserved


INNER = JoinType("inner", any_width=True)
_TYPES = {
    "inner": INNER,
    "left": JoinType("left", preserved=(0,), any_width=True),
    "right": JoinType("right", preserved=(1,)),
    "full": JoinType("full", preserved=(0, 1)),
    "left_semi": JoinType("left_semi", combinations=False, first_match=True),
    "left_anti": JoinType("left_anti", preserved=(0,), combinations=False),
    "right_semi": JoinType("right_semi", combinations=False, first_match=True, reversed=True),
    "right_anti": JoinType("right_anti", preserved=(0,), combinations=False, reversed=True),
}
_OTHER_NAMES = {  # as Spark spells them, without underscores
    "leftouter": "left",
    "rightouter": "right",
    "outer": "full",
    "fullouter": "full",
    "semi": "left_semi",
    "leftsemi": "left_semi",
    "anti": "left_anti",
    "leftanti": "left_anti",
    "rightsemi": "right_semi",
    "rightanti": "right_anti",
}


def join_type(how: object, inputs: int) -> JoinType:
    """The join type of a name, as Spark spells it; refused where it is not built for so many inputs."""
    plain = how.lower().replace("_", "") if isinstance(how, str) else ""
    found = _TYPES.get(_OTHER_NAMES.get(plain, plain))
    if found is None:
        raise InvalidJoin(f"how={how!r}; give one of {', '.join(_TYPES)}")
    if inputs > 2 and not found.any_width:
        raise InvalidJoin(
            f"how={how!r} joins two inputs, this join has {inputs}; give inner or left, or join two by two"
        )
    return found
