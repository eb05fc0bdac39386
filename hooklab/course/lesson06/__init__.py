"""What is lesson 6's own. How does `__call__` run hooks?"""
