"""What is the start page's own: the index of symptoms, the map of all hooks, and an exercise to try a check on."""
