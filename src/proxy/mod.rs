//! The data plane: listen, carry requests, keep the ledger.
