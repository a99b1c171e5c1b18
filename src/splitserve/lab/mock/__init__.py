"""A server that sends exactly the bytes of a script at the script's times, and what it is for:
proof that the load client sees what was sent, when it was sent (``conformance``).

Real sockets, no model. Sends are stamped on the client's clock, so that both can be compared.
"""
