//! How many I/O resources an application gets, and which.
