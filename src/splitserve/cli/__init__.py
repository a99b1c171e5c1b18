"""The ``splitserve`` command: one file per verb, heavy imports after the arguments are read."""
