"""The tile IR: frozen nodes, one screen a file. Start with ``README.md`` and ``stmts.py``."""
