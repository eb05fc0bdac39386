"""The course's machinery: what the lessons and the classroom need. The library never imports it.

- ``launcher``: ``python -m hooklab lab``, ``test``, ``doctor``; standard library only, as ``root`` and ``files``
- ``build``: makes both notebooks of a lesson from its one source
- ``exercises``: checks, their outcomes, and progress
- ``lesson01``, ``lesson02`` …: all that is one lesson's own: checks, figures, explorer, experiment
- ``digits``, ``plots``, ``explorers``, ``experiments``: what several lessons share
- ``browser``: JupyterLab in a real browser, for tests and for the README's picture
"""
