"""The parts of the report, one function each: results in, a section out. Order: ``build``."""
