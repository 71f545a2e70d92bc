"""Every story of this folder is told in several ways: what happens must be the same."""

import pytest

from tests.tables import WAYS, Story


@pytest.fixture(params=WAYS)
def story(request):
    """A run of a join, told straight, restarted before each step, with one hash for all keys, …"""
    return lambda joined: Story(joined, request.param)
