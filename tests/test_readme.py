import re
from pathlib import Path

import streamjoin as sj

README = Path(__file__).parents[1] / "README.md"


def test_the_local_example_does_what_it_says() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict[str, object] = {"sj": sj}
    exec(blocks[1], names)
    assert len(names["rows"]) == 1
    assert [one.text() for one in names["announced"]] == ["<79>"]
    assert names["held"].empty
    assert names["joined"].local(snapshot=names["saved"]).state().empty


def test_every_link_of_the_readme_and_the_docs_leads_somewhere() -> None:
    for page in (README, *README.parent.glob("docs/**/*.md"), README.parent / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert target.startswith("https://") or (page.parent / target).exists(), f"{page.name}: {target}"
