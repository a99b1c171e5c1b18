"""What connector tcp is made of.

    connectors/tcp   the connector: engine's thread
    sender           a connected peer: a queue, and the threads that take from it, one per stream
    owner            the pool's own side: a thread that listens, one per stream of a peer
    batches          a layer's spans cut into frames; when a transfer has ended
    frames           what goes over a stream (pure)
    payload          a frame's bytes on a wire, with their checksum
    wire             a socket that moves pieces of the pool's memory, and notices that nothing moves

A write is a PUT with the bytes, answered by OK or BAD; a read is a GET, answered by DATA. A stream
never carries both at once, so that neither end sends what the other is not about to read.
"""
