"""What runs in the sandbox's own processes. Imports nothing but the standard library and itself.

`server` is a fork server; each program gets a fork of it, which `child` isolates before it runs
`programs` or `remote`. The scorer starts it with this folder's parent on the path, so that none of
the package's other modules is ever imported there.
"""
