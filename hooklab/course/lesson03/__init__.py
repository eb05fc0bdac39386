"""Lesson 3: How do I see a layer's output, and replace it?"""
