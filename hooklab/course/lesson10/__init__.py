"""Lesson 10: what can I hook without a module?"""
