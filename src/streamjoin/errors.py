"""The exceptions, by whose fault it is: the caller's, the data's, the source's, ours. Every message ends with
what to do.
"""


class StreamJoinError(Exception):
    """Base of everything this library raises on purpose."""


class InvalidJoin(StreamJoinError):
    """The caller's fault: a declaration or a join that cannot work as written."""


class BadInput(StreamJoinError):
    """The data's fault: names the stream, the column and the row or byte where possible."""


class SourceLost(StreamJoinError):
    """The source's fault: it went away while it was read, and did not come back."""


class PunctuationViolated(StreamJoinError):
    """A tuple came after a punctuation of its own stream had closed its key."""


class StateFormatError(StreamJoinError):
    """A stored state cannot be read: written by another version, by another join, or damaged."""


class LimitExceeded(StreamJoinError):
    """A declared limit, or a full disk, does not allow the work to continue."""


class InvariantBroken(StreamJoinError):
    """The library's fault, a broken invariant: please report it with the message."""
