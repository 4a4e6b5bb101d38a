"""The administrative requests of Cluster Mirroring (KIP-1279), API keys 94 to 104, served on the process's listeners.

A client that administers the authors' implementation can thus administer this mirror. Off by default (see
`settings.Settings.mirroring_api`). The requests act through `operations.Operations`, as the admin API's do; here are
the rules by which they are refused, the states' names, and the forwarding between the processes of one destination.

Different from the authors' build: a start of a mirror that does not exist is refused (137), topics have another id than
on the source, and a stopped partition is described by the process that mirrored it, which does not lead it any more.
"""
