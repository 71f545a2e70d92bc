"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

OUT = click.option(
    "--out", type=click.Path(path_type=Path), default=Path("out"), show_default=True, help="Folder for files."
)
SEED = click.option("--seed", default=1, show_default=True, help="The same seed gives the same data.")
ITEMS = click.option("--items", default=2_000, show_default=True, help="News items in all.")
RECORDS = click.option(
    "--records", default=50.0, show_default=True, help="Access records per item, on average."
)
ORDER = click.option(
    "--order",
    type=click.Choice(["ordered", "random"]),
    default="random",
    show_default=True,
    help="The order in which news arrive.",
)
CHECKPOINT = click.argument("checkpoint")
CONF = click.option(
    "--conf",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the Spark session, e.g. of a file system.",
)
JOIN = click.option("--join", help="Of this join only, where the query has several.")
