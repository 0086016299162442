"""Ways a command ends that are no failure."""


class ReaderGone(Exception):
    """Whoever read our standard output has closed it: `quillcast sub t | head -1`."""


class Interrupted(Exception):
    """Ctrl-C came, and the command has ended in good order or was told twice."""


class Terminated(Exception):
    """SIGTERM came, and the command has ended in good order."""
