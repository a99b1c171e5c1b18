"""What is asked for: requests made from a seed, from public traces, from a user's conversations.

Every reader gives ``LoadRequest`` values that depend on its arguments and the file alone, so that
every arm of a study, in any process, sends the same. ``corpus_hash`` proves it.
"""
