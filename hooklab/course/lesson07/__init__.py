"""What is lesson 7's own. How does one forward hook become a training method?"""
