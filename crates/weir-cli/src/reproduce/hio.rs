//! `weir reproduce hio`.

use super::study::{Context, Study};

pub(super) fn study(_context: &Context) -> Result<Study, String> {
    Err("not built yet".into())
}
