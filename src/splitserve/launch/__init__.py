"""Turns what was asked for into processes that run and are kept running.

``topology`` (what was asked, from a file or from flags) and ``facts`` (what the machine and the
model are) go into ``plan`` (pure), which says exactly which processes to start. ``supervise``
starts them through a ``hosts`` entry, waits until the gateway would serve a request, restarts what
dies and stops all. Each engine has one file in ``commands`` that knows its command line.
"""
