"""Who may go to a worker now, who waits, and who is told at once to come back later. Pure.

Receives requests, the workers' loads and what was measured; gives an order and refusals.

    views.py      the values that go in and out
    credits.py    whether a worker may be sent anything
    seats.py      how many requests a worker runs, learned from its refusals
    rates.py      how fast prompts and answers get done, learned from those that were
    forecast.py   when a request's first token would come
    level.py      fair turns between owners of one priority
    line.py       who waits, in the order in which they will go
    core.py       all of it behind one door
"""
