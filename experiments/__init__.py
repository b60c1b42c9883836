"""Tables, figures, statistics and plans, drawn from run folders alone; never imports torch."""
