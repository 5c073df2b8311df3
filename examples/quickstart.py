"""Train one model on a hundred clients that each hold one kind of digit, and see what it cost."""

import tacit

federation = tacit.Federation.embedded("digits", clients=100, partition="label-sorted")
training = federation.train(tacit.FedHEONN(lam=0.001))

scores = training.model.scores(federation.test)
cost = training.ledger.summary()
print(f"accuracy {scores['accuracy']:.3f}, {cost['messages']} messages, {cost['bytes_up']:,} bytes up")
