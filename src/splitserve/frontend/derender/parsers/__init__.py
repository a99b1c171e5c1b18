"""An answer's text in pieces, however it is cut, to events: reasoning, content, tool calls.

    base.py        Parser, the seam; ToolSpec and CallIds, what a tool parser is given
    registry.py    name -> "module:class", one table for reasoning and one for tools
    detect.py      which of them a chat template asks for
    chain.py       reasoning, then tool calls in what is no reasoning
    harmony.py     gpt-oss' format, which is both at once
    forced.py      answers that are held to JSON because the client demands a call
    marks.py       finds markers in pieces and holds back what may become one
    content.py     content around calls; writer.py and calls.py make the events
    checkpoint.py  reads a saved state strictly; pieces.py cuts text that comes at once
    call_parser.py the machine of formats with JSON arguments: shape.py, sections.py, deepseek.py
    json_call.py   a call as one object; json_scan.py follows JSON and knows where a value ends
    tags.py        the machine of formats with tags; typed_args.py gives values their types
    python_*.py    Python literals to JSON, without evaluating anything
    reasoning/     one file a format
    tools/         one file a format

Each is an incremental state machine whose state is a small JSON value. None sees tokens, HTTP or
time, and none looks at a character more than a constant number of times.
"""
