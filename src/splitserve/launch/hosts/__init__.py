"""Where processes run: one file per kind of place. ``base`` is the seam.

An entry is called with the folder for logs.
"""

from typing import Final

HOSTS: Final = {"local": "splitserve.launch.hosts.local:LocalHost"}
