"""CustomResourceDefinitions at work: from an object in the store to a resource that is served.

`rows` makes table rows from a definition, `naming` decides whether its names are free,
`controller` follows the definitions and brings the server's table of kinds up to date.
"""
