//! Servers and their ports, as manifests show them.
