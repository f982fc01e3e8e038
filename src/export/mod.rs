//! The admin server: stats, exchanges, metrics, HDR logs, health.
