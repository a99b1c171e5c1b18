"""What connector mooncake is made of: the agent (the only file that calls the package), the
environment that the package is configured by, and the token by which a peer is recognised.
``transfer/posting`` has the rest.

What is said of Mooncake here is read from its source about 0.3.13; the tests ran with the wheel of
0.3.13.post1, over TCP:

- A write over TCP counts as done when the peer has put all bytes in place and said so. Before
  0.3.12 it did when the last byte had left (kvcache-ai/Mooncake#2850), and it still does where
  ``MC_TCP_PROTO`` is 1.
- Nothing that was submitted can be taken back. A copy of which nothing moves is given up after
  30 s, by closing its connection (#3542); what a frozen peer has of a write in its socket by then
  lands when it thaws. So that time is set to for ever: a write then ends when the peer has answered
  or its end of the connection is closed (or the host has not been reached for as long as the kernel
  tries, some 15 minutes). ``posting/copies.py`` says what is done instead of stopping a copy.
- Ending an engine joins the thread that all its copies over TCP run on: no read lands after that.
  It takes a second.
- ``get_batch_transfer_status`` spins until the whole batch has ended. ``transfer_check_status``
  never waits, and looks at the first request of a batch alone. So each request is a batch.
- 1,024 requests may wait for one peer, and the next is refused: one prompt can reach that (#4209).
"""
