//! pmuscope.
