"""The OpenAI HTTP surface as values: what a client may send, and the form of an error.

Receives raw JSON bodies from the frontend, gives back checked requests or a CallerError that
names the field. Nothing behind the frontend imports this package.
"""
