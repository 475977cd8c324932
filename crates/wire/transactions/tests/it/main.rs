//! Transactions of the protocols.
