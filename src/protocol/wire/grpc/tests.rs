//! gRPC bodies with what must come out of them, written by hand.
