"""What a training step costs, measured."""
