"""Ways for a command to end that are not failures."""


class ReaderGone(Exception):
    """The reader of our standard output has closed it: `quillcast sub t | head -1`."""


class Interrupted(Exception):
    """Ctrl-C was pressed; the command has ended in good order, or Ctrl-C was pressed twice."""


class Terminated(Exception):
    """SIGTERM arrived, and the command has ended in good order."""
