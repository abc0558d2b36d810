//! The record a process keeps, how records of a job are merged, and the JSON profile.
