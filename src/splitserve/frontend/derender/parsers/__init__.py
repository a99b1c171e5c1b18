"""An answer's text in pieces, however it is cut, to events: reasoning, content, tool calls.

    base.py        Parser, the seam; ToolSpec and CallIds, what a tool parser is given
    registry.py    name -> "module:class", one table for reasoning and one for tools
    detect.py      which of them a chat template asks for
    marks.py       finds markers in pieces and holds back what may become one
    chain.py       reasoning, then tool calls in what is no reasoning
    harmony.py     gpt-oss' format, which is both at once
    json_scan.py   follows JSON character by character and knows where a value ends
    reasoning/     one file a format
    tools/         one file a format

Each is an incremental state machine whose state is a small JSON value. None sees tokens, HTTP or
time, and none looks at a character more than a constant number of times.
"""
