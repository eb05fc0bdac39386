"""What is lesson 1's own. Why is `y.grad` None, and where did the gradient go?"""
