"""What is lesson 2's own. How do I read, keep or change a gradient while it flows?"""
