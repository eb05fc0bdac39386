"""What is lesson 4's own. How do I see and change a module's input?"""
