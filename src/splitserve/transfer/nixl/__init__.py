"""What connector nixl is made of: the agent (the only file that calls the package), the tables that
it wants, and what is known of the way that bytes take. ``transfer/posting`` has the rest.

NIXL gives no way to stop a copy for good. Over UCX's TCP a released handle says that it is done,
while its bytes still arrive later, in the peer's pool or in ours (found with 1.5.1 and a frozen
peer). So a handle is never released before its copy has ended.
"""
