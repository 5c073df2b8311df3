"""A site's node that the SuperLink does not let in, without a SuperLink."""

from types import SimpleNamespace

import pytest

pytest.importorskip("flwr")

import httpx

from tacit.core.errors import UnavailableError
from tacit.deploy import node as module
from tacit.deploy.certificates import write_certificates, write_node_key


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A node whose SuperLink answers what a test says, and whose time passes while it sleeps."""
    write_certificates(tmp_path)
    write_node_key(tmp_path / "node")
    found = module.Node("127.0.0.1:1", tmp_path / "ca.crt", tmp_path / "node")
    found._client.close()
    clock = SimpleNamespace(now=0.0)

    def sleep(seconds):
        clock.now += seconds

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep))
    found.clock = clock
    return found


def answering(*codes):
    """Return a client that answers with these codes, the last of them again and again."""
    left = list(codes)

    def activate(request):
        code = left.pop(0) if len(left) > 1 else left[0]
        if code != 200:
            request = httpx.Request("POST", "https://127.0.0.1:1")
            raise httpx.HTTPStatusError("refused", request=request, response=httpx.Response(code))
        return SimpleNamespace(node_id=7)

    return SimpleNamespace(ActivateNode=activate, close=lambda: None)


def test_after_a_crash_it_waits_until_the_superlink_has_missed_it(node):
    node._client = answering(412, 412, 412, 200)
    assert node._activate() == 7
    assert 0 < node.clock.now < 60


def test_it_does_not_wait_for_ever(node):
    node._client = answering(412)
    with pytest.raises(UnavailableError, match=r"refuses this node.*or another process answers"):
        node._activate()
    assert 60 < node.clock.now < 90


def test_a_false_signature_or_clock_is_told_at_once(node):
    node._client = answering(401)
    with pytest.raises(UnavailableError, match=r"refuses this node \(status 401\).*or the clocks differ"):
        node.serve(None, None, None)
    assert node.clock.now == 0
