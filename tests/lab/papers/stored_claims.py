"""The claims of the stored report on the papers: their ids are frozen, since reports are compared by them."""

import json
from pathlib import Path

_STORED = Path(__file__).parents[3] / "docs" / "results" / "papers.json"


def stored_ids(paper: str) -> list[str]:
    ids = [claim["id"] for claim in json.loads(_STORED.read_text())["claims"]]
    assert len(ids) == 155
    return sorted(one for one in ids if one.startswith(f"{paper}-"))
