"""A federated method where scikit-learn expects an estimator: a grid search over λ."""

import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import GridSearchCV

from tacit.estimators import FedHEONNClassifier

X, y = load_wine(return_X_y=True)
search = GridSearchCV(FedHEONNClassifier(), {"lam": [0.001, 0.1, 10.0]}, cv=3).fit(X, y)
print(f"best: {search.best_params_}, accuracy {search.best_score_:.3f}")

# groups names the owner of each row; who owns which makes no difference to this method.
owners = np.arange(len(y)) % 5
together = FedHEONNClassifier().fit(X, y, groups=owners)
apart = FedHEONNClassifier().fit(X, y)
print(f"same predictions: {(together.predict(X) == apart.predict(X)).all()}")
