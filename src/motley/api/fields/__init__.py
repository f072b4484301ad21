"""Who owns which field of an object: Kubernetes' `managedFields`, computed.

`pathset` holds sets of fields in the form they are stored in, `types` reads the schema for what
counts as one field, `walk` and `merging` go over objects, `tracking` keeps the record of owners at
every write. Server-side apply itself is `motley.api.patch.apply`.
"""
