"""Where processes run: one file per kind of place. ``base`` is the seam."""
