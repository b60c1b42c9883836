"""Slot ``gradient``: how the window's gradient is computed."""
