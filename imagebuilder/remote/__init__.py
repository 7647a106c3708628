"""What an index tells over HTTP: project pages, metadata, and parts of wheels that are never fetched whole.

Used where facts are read of an index; wheels for an image are uv's affair.
"""
