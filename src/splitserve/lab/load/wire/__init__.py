"""One exchange with the endpoint: connection, HTTP, events, and what the answer says.

Takes bytes to send from ``client``, gives it an ``Exchange``: what came, when, and how it ended.
"""
