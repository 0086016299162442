"""`python -m quillcast` is `quillcast`."""

from quillcast.cli import main

if __name__ == "__main__":
    main()
