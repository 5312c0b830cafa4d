"""One pass a file; compiler.py lists them in order."""
