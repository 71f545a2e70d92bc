"""What a test needs of the Spark version it runs on."""

import pytest

from streamjoin.spark import versions

needs_read_limits = pytest.mark.skipif(
    not versions.HAS_READ_LIMITS, reason="Python sources have read limits and availableNow from Spark 4.2 on"
)


@pytest.fixture
def _read_as_from_4_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers driven by hand are as Spark has them from 4.2 on, whichever Spark is there."""
    monkeypatch.setattr(versions, "HAS_READ_LIMITS", True)
