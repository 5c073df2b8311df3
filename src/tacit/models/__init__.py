"""What is learnt: models that predict, and leave in standard formats."""
