"""Rules that somebody else's server decides.

configuration.py  a stored webhook, read once per version
caller.py         the HTTPS call and its failures, in Go's words
verdict.py        what an AdmissionReview says: yes, no, a patch, warnings
plugins.py        MutatingAdmissionWebhook and ValidatingAdmissionWebhook
"""
