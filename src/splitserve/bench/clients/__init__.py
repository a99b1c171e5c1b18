"""The lab's load client beside other load clients, on one server.

Every client talks through a ``tap``, which notes when bytes passed; what it then says of the server
is compared with that (``heard``). So clients need not meet the server in the same mood: each one's
error is its own.
"""
