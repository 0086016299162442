"""Applications that use a running peer of their machine instead of one of their own: its clients.

A client asks the peer's control socket to `connect`. From then on the socket carries frames, as a link does
(`live.transport.framing`): bundles with credit, large blocks in shared memory, and the messages of
`live.clients.messages`. `proxy` is the peer as the client's publishers and subscriptions see it; `session` is a client
as the peer sees it.
"""
