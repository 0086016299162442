"""One peer on asyncio: sockets, files and the public `Node` around the protocols that do no I/O of their own."""
