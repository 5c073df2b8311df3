"""The innermost room: messages, parties, the coordinator, engines as an interface, events, errors."""
