"""What is lesson 9's own: made pictures and sequences, two networks that learn from them, and what is asked of both."""
