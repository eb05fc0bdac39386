"""What is lesson 8's own: its patients, checks, predictions, figures and explorer."""
