"""What is lesson 5's own. What do grad_input and grad_output mean, and which backward hook do I use?"""
