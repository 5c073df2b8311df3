"""What methods are, and what they leave behind."""

from tacit.core.method import Method
from tacit.models.predictor import Predictor as Model

__all__ = ["Method", "Model"]
