"""Puts this folder on the path: `index_server` is for the tests of every folder below."""
