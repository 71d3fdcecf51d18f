"""The pages: one module for each part of the console, with its routes in ROUTES."""
