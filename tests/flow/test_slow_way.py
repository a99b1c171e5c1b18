"""KV that takes a slow way within one host is announced: in the log, the metrics and by doctor."""

from client import complete
from cluster import FAKE, Cluster, running, wait_until

from splitserve.doctor.deployment import examine_deployment

LOAD_S = 5.0
"""Within this time a gateway has heard what its workers did."""

PAIRED = [("prefill", "p0"), ("decode", "d0")]


def shown(cluster: Cluster, way: str, faster: str) -> None:
    """Waits until the one link is shown as going by ``way``."""
    labels = {"prefill": "p0", "decode": "d0", "way": way, "faster": faster}
    wait_until(
        lambda: cluster.total("splitserve_link", **labels) == 1,
        LOAD_S,
        lambda: str([key for key in cluster.metrics() if key[0] == "splitserve_link"]),
    )


def test_tcp_within_a_host_is_a_warning_with_the_cure(model: str) -> None:
    with running(model, PAIRED, (*FAKE, "--connector", "tcp")) as cluster:
        complete(cluster, range(300, 320), 4)
        shown(cluster, "tcp", "shm")
        report = examine_deployment(cluster.url, pause_s=0.0)
        log = cluster.workers["p0"].log.read_text()
    assert "connector tcp, way tcp (asked for; the automatic choice is shm); not by shm" in log
    assert "KV goes to d0 by tcp though shm could be taken: leave out the connector" in log
    (advice,) = (one for one in report.advice if one.about == "slow")
    assert advice.says.endswith("though shm could be taken: p0 to d0")
    assert "leave out the connector" in advice.cure


def test_the_automatic_choice_is_not_complained_of(model: str) -> None:
    with running(model, PAIRED, FAKE) as cluster:
        complete(cluster, range(300, 320), 4)
        shown(cluster, "shm", "")
        report = examine_deployment(cluster.url, pause_s=0.0)
        log = cluster.workers["p0"].log.read_text()
    assert "linked to decode worker d0: connector shm, way shm (the automatic choice)" in log
    assert "though" not in log
    assert [one for one in report.advice if one.about == "slow"] == []
