"""The progress bar of staging: drawn where there is a terminal and rich, and never in the way."""

import sys

import pytest

from streamjoin.enrich import progress_bar
from streamjoin.enrich.progress_bar import is_shown


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_needs_a_terminal_and_rich(monkeypatch, terminal, installed):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    if not installed:
        monkeypatch.setattr(progress_bar, "find_spec", lambda name: None)
    assert is_shown() == (terminal and installed)
    with progress_bar.progress_bar("staging") as progress:
        progress(1, None)
        progress(2, 2)
