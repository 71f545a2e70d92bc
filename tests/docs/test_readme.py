import re
from pathlib import Path

import streamjoin as sj
from streamjoin.demo import auction as demo_auction
from streamjoin.demo import news as demo_news

README = Path(__file__).parents[2] / "README.md"


def test_the_local_example_does_what_it_says() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict[str, object] = {"sj": sj}
    exec(next(block for block in blocks if "pa.schema" in block), names)
    assert len(names["rows"]) == 1
    assert [one.text() for one in names["propagated"]] == ["<79>"]
    assert names["held"].empty
    assert names["joined"].local(snapshot=names["saved"]).state().empty


def test_the_plans_of_the_demos_are_those_of_the_demos() -> None:
    counting = demo_auction.watched_join(demo_auction.both_joins()[0], 12 * 3600 * 10**6)
    for joined in (demo_news.news_join(), counting):
        assert f"```text\n{joined.explain()}\n```" in README.read_text()


def test_the_prediction_of_the_readme() -> None:
    rates = {"news": 1, "access": sj.Rate(100, rows_per_key=100, open_for="10 minutes")}
    text = demo_news.news_join().explain(rates=rates)
    assert (
        "news: 600 tuples (each needed for 10 min on average), 600 closed keys to remember, 38.4 kB" in text
    )


def test_every_link_of_the_readme_and_the_docs_leads_somewhere() -> None:
    for page in (README, *README.parent.glob("docs/**/*.md"), README.parent / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert target.startswith("https://") or (page.parent / target).exists(), f"{page.name}: {target}"
