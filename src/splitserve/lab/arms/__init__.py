"""An arm of a study as something that can be brought up, asked and taken down.

``base`` says what a run needs of an arm; ``url`` is one that runs already, ``topology`` one that
the lab starts and stops as an operator would, with ``splitserve up``. Nothing here sends load.
"""
