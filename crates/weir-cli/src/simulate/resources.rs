//! `weir simulate resources`.

use super::{Answer, Request};

pub(super) fn simulate(_request: &Request) -> Result<Answer, String> {
    Err("not built yet".into())
}
