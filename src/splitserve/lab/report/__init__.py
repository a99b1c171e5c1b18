"""What a study found, for people and for machines: one model, several forms of it.

``build.report_of(results)`` makes the whole report as values, in which every number carries its
unit, n, method and interval, or says why it is refused. The forms (``html``, ``markdown``,
``json_form``, ``runs_csv``, ``junit``) only write those values down; ``write`` puts all of them
into a folder.
"""
