"""The innermost room: messages, parties, the desk, engines as an interface, events, errors."""
