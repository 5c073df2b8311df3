"""Events: numbered in order, the same for all subscribers, and readable as JSON."""

import msgspec
import pytest

from tacit.core import events as module
from tacit.core.events import Event, Events, Noted, Replied, WaveEnded

KINDS = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, Event)]


def test_numbers_rise_by_one_and_all_subscribers_see_the_same():
    one, other = [], []
    events = Events(lambda *seen: one.append(seen))
    events.emit(Noted("run", "before"))
    events.subscribe(lambda *seen: other.append(seen))
    for text in "abc":
        events.emit(Noted("run", text))
    assert [number for number, _ in one] == [0, 1, 2, 3]
    assert other == one[1:]


def test_what_a_subscriber_raises_is_not_swallowed():
    def broken(number, event):
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        Events(broken).emit(Noted("run", "x"))


def test_an_event_cannot_be_changed():
    event = Noted("run", "text")
    with pytest.raises(AttributeError):
        event.text = "other"


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind is not Event], ids=lambda kind: kind.__name__
)
def test_json_names_the_class(kind):
    assert kind.__struct_config__.tag == kind.__name__
    assert kind.__struct_config__.frozen


def test_events_come_back_from_json():
    union = Replied | WaveEnded | Noted
    for event in (Replied(1, "p", 10, 20, 0.5), WaveEnded(1, 3, 1, 0.1, 0.2), Noted("p", "text", "warning")):
        assert msgspec.json.decode(msgspec.json.encode(event), type=union) == event
