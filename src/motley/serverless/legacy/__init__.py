"""Minik8s' way to functions, as its document has it: `.env` files, scripts, `/api/funcs` URLs.

    envfile.py   a function's `.env` file → its template
    server.py    the URLs

A template (`kind: Func`) is read as a Function by `api.conversion.minik8s_func`.

Only spellings are translated here: what runs is a Function like any other.
"""
