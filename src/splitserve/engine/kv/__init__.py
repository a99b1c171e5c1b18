"""KV memory: ``blocks`` (who owns each block), ``prefix`` (which blocks can be reused), ``pool``
(the tensors). The first two know no tensors."""
