"""Looks at a machine, at what a topology would do there, or at a running deployment.

    findings     what there is to say, as data; JSON has the same names
    machine      this machine: versions, gpus, links
    topology     what a topology would choose: local_model, ports, pairs
    deployment   what a running gateway tells of itself: told, clock
    costs        what a prompt's KV weighs, and how long it takes on a path (pure)
    *_advice     what to change, from what was found (pure)
    text         the same for a terminal (pure)

``link_process`` and ``links`` measure: two processes, a pool in each, and the connector between
them that workers would use.
"""
