"""What is lesson 10's own. What can I hook when there is no module?"""
