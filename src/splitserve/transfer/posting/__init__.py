"""What connectors share whose library is told to copy and then asked whether it has: the thread
that tells and asks, the copies that are under way, and the connector but for its description.

A library gives ``started.Agent``. It must be one whose copies cannot be stopped once they began;
``copies.py`` says what is done instead of stopping them.
"""
