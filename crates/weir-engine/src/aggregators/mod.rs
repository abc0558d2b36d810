//! The order in which storage targets serve the aggregators of collective calls.
