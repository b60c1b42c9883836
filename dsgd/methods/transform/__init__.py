"""Slot ``transform``: what is done to the gradient before the optimiser."""
