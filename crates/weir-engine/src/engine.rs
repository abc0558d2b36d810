//! One state machine for all sharing policies: `step(now, event, &mut actions)`.
