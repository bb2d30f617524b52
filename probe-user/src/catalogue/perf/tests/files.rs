//! Directories.
