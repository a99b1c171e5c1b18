"""An OpenAI request body becomes a Job: token ids, sampling settings and what the answer holds.

Synchronous and without IO, so it runs on the event loop or in a thread alike.
"""
