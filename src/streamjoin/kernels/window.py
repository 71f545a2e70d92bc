"""The window predicate. A result is valid when, for every component i, (the latest time among
its components) - t_i <= W_i, inclusive. Worked number: times 10 and 14 with windows 4 and none
are valid, 10 and 15 are not. Cost: linear in the pairs, once per component.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def within_windows(times: Sequence[Ints], windows_us: Sequence[int | None]) -> Mask:
    """Which combinations of components lie in all windows (bounds inclusive).

    As the latest time only grows with each further component, a partial combination that fails
    can never become valid: this also prunes intermediate results.
    """
    latest = times[0]
    for time in times[1:]:
        latest = np.maximum(latest, time)
    mask: Mask = np.ones(len(latest), np.bool_)
    for time, window in zip(times, windows_us, strict=True):
        if window is not None:
            mask &= latest - time <= window
    return mask
