"""Servers that cannot run where the tests do (they need a GPU, or gigabytes), replayed from their source.

Each file names the version and the files that it follows. What a replayer invents is only how long things take: it sleeps, takes
the times by the clocks that the server uses, and reports them in the server's own form, at the server's own moment, by the exporter
and the batches that the server has. `truths` holds what really happened, by trace id.
"""
