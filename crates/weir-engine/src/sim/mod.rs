//! The discrete-event simulator: event queue, storage models, workloads, metrics.
