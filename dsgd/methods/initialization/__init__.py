"""Slot ``initialization``: the weights before step 1."""
