"""Figures and the data behind them that belong to one lesson each; what several lessons share is in `hooklab.plots`."""
