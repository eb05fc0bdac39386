"""What is lesson 3's own. How do I see (and replace) what a layer puts out?"""
