"""What is lesson 4's own. How do I see and change what goes in?"""
