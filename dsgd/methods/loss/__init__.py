"""Slot ``loss``: per-example losses and their weights."""
