//! The OTLP receiver.
