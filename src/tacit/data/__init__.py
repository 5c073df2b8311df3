"""Loading, partitioning, schema agreement and federated preparation."""
