"""Slot ``regularizer``: what is added to the loss."""
