"""State schemas: Spark's metadata of an operator names their files by full paths, so a copy needs its own."""

from __future__ import annotations

import json

from streamjoin.spark.checkpoint.reader import metadata_files
from streamjoin.spark.files import Files


def point_schemas_to(files: Files, checkpoint: str, name: str) -> None:
    """Let the metadata in a checkpoint folder name the schemas of the checkpoint `name`, which it will be."""
    for number in files.numbers(f"{checkpoint}/state"):
        schemas = f"/state/{number}/_stateSchema/"
        for path in metadata_files(files, f"{checkpoint}/state/{number}"):
            version, text = (files.read(path) or "").split("\n", 1)
            about = json.loads(text)
            for each in about["stateStoreInfo"]:
                if "stateSchemaFilePaths" in each:
                    each["stateSchemaFilePaths"] = [
                        f"{files.full(name)}{schemas}{old.rpartition(schemas)[2]}"
                        for old in each["stateSchemaFilePaths"]
                    ]
            files.write(path, f"{version}\n{json.dumps(about)}")
