"""The worker: one engine, the connectors of its pools, and what each role does with them.

Receives messages from gateways and from other workers, gives back tokens and KV. ``server`` owns
the sockets, ``loop`` the engine's thread, ``worker`` joins the roles (no IO). Every worker can do
everything; its role says what the router sends it.
"""
