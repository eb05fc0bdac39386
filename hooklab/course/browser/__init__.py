"""JupyterLab in a real browser: for the browser tests, which also take the README's picture.

- ``jupyter``: a separate JupyterLab, on loopback, that leaves nothing behind
- ``chrome``: the browser that is there, driven by Playwright
- ``lab``: a tab with JupyterLab in it, and the notebook that is open there
"""
