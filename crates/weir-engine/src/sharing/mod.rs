//! Who may do I/O now, and at what share of the bandwidth: one file per policy.
