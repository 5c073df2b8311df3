"""Three hospitals train together, each with its own table; two more join later, and nobody is asked again."""

import numpy as np

import tacit

# Here one data set is cut into five. Yours would come from tacit.load("hospital.csv", target="outcome").
table = tacit.load("breast_cancer")
owner = np.arange(table.rows) % 5
tables = {f"hospital-{number}": table.take(owner == number) for number in range(5)}
later = {name: tables.pop(name) for name in ("hospital-3", "hospital-4")}

# The classes are declared, so that no hospital has to tell which diagnoses it holds. Masks hide each
# hospital's sums among the others': the coordinator sees totals over three, then over two.
declared = {"classes": ["malignant", "benign"]}
first = tacit.Federation.of(tables, declared=declared).train("fedheonn", protect="masked")
joined = tacit.Federation.of(later).train("fedheonn", protect="masked", min_clients=2, start=first)

for name, training in (("three hospitals", first), ("five hospitals", joined)):
    print(f"{name}: accuracy on all rows {training.model.scores(table)['accuracy']:.3f}")
