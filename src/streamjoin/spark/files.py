"""Files of a checkpoint, on any file system that Spark can write: through Hadoop, as Spark itself does.

A path is a text such as `s3a://bucket/folder` or `/data/folder`; without a scheme it is on the session's own
file system. Nothing is assumed of renaming: a folder is copied file by file, and a small file is written to
another name first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Files:
    """The file systems that a session reaches."""

    spark: SparkSession

    def exists(self, path: str) -> bool:
        files, at = self._at(path)
        return bool(files.exists(at))

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; none where there is no such folder."""
        files, at = self._at(folder)
        if not files.exists(at):
            return []
        return sorted(str(one.getPath().getName()) for one in files.listStatus(at))

    def numbers(self, folder: str) -> list[int]:
        """The names in a folder that are numbers."""
        return sorted(int(name) for name in self.names(folder) if name.isdigit())

    def tree(self, folder: str) -> list[str]:
        """The paths of all files below a folder, from it on."""
        files, at = self._at(folder)
        found, inside = files.listFiles(at, True), []
        start = len(str(files.makeQualified(at).toUri().getPath()).rstrip("/")) + 1
        while found.hasNext():
            inside.append(str(found.next().getPath().toUri().getPath())[start:])
        return sorted(inside)

    def read(self, path: str) -> str | None:
        """The text of a file; None where there is none."""
        files, at = self._at(path)
        if not files.exists(at):
            return None
        stream = files.open(at)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Write a small file whole: whoever reads finds the old text, the new one, or no file."""
        files, at = self._at(path)
        _, unfinished = self._at(f"{path}.unfinished")
        stream = files.create(unfinished, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        files.delete(at, False)
        files.rename(unfinished, at)

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it."""
        files, at = self._at(path)
        files.delete(at, True)

    def copy(self, source: str, target: str) -> None:
        """Copy a file, or a folder with all that is in it; the target must not be there."""
        (files, at), (others, there) = self._at(source), self._at(target)
        others.mkdirs(there.getParent())
        self._jvm.org.apache.hadoop.fs.FileUtil.copy(files, at, others, there, False, True, self._conf)

    def rename(self, source: str, target: str) -> None:
        """Give a file or a folder another name; where a file system cannot, it is copied and removed."""
        files, at = self._at(source)
        if not files.rename(at, self._at(target)[1]):
            self.copy(source, target)
            self.remove(source)

    def make(self, folder: str) -> bool:
        """Make a folder and see whether it may be written; raises what Hadoop raises."""
        files, at = self._at(folder)
        if not files.mkdirs(at):
            return False
        files.access(at, self._jvm.org.apache.hadoop.fs.permission.FsAction.WRITE)
        return True

    def full(self, path: str) -> str:
        """The path with its scheme, as Spark writes it down."""
        files, at = self._at(path)
        return str(files.makeQualified(at).toString())

    def local(self, path: str) -> str | None:
        """The same path on this machine's own disk, None where it is elsewhere."""
        files, at = self._at(path)
        whole = files.makeQualified(at).toUri()
        return str(whole.getPath()) if whole.getScheme() == "file" else None

    def _at(self, path: str) -> tuple[Any, Any]:
        at = self._jvm.org.apache.hadoop.fs.Path(path)
        return at.getFileSystem(self._conf), at

    # Hadoop's file systems are reached through the JVM only

    @property
    def _jvm(self) -> Any:
        return self.spark.sparkContext._jvm  # noqa: SLF001

    @property
    def _conf(self) -> Any:
        return self.spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001


FileError = Py4JJavaError  # what Hadoop raises
