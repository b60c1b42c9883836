"""Slot ``adapter``: which parameters train."""
