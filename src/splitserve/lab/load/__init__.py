"""Load on one endpoint: what to send, when to send it, and what came back.

Takes requests (``corpus``) and due times (``arrivals``) from a study's plan, sends them with its
own client (``client``) and gives one ``RequestRecord`` per request to whoever measures. It judges
nothing.
"""
