"""The section `trainer.phases`, and `early_stopping`, which phases share with it."""
