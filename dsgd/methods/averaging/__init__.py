"""Slot ``averaging``: which weights are evaluated."""
