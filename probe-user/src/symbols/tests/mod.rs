//! Programs, named.
