"""Rewrite the printed blocks of the pages: `python -m tests.docs.update`, from the root, inside .venv."""

import warnings

from streamjoin import UnboundedState
from tests.docs.pages import LOCAL, ROOT, regenerated

if __name__ == "__main__":
    warnings.simplefilter("ignore", UnboundedState)
    for page in LOCAL:
        (ROOT / page).write_text(regenerated(page)[0])
