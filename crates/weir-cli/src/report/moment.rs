//! Moments of the profile, which are in UTC, as the clock on the wall shows them.

use std::ffi::{CStr, CString};

/// `2026-03-01 10:30:00 CET (09:30:00 UTC)`; only UTC where that is the local time; the text itself if it is no moment.
pub(super) fn local(rfc3339: &str) -> String {
    described(rfc3339).unwrap_or_else(|| rfc3339.to_string())
}

fn described(rfc3339: &str) -> Option<String> {
    let utc = parse(rfc3339)?;
    // SAFETY: all zero is a valid moment; `timegm` and `localtime_r` read one and fill another.
    let local = unsafe {
        let mut moment = utc;
        let seconds = libc::timegm(&mut moment);
        let mut local: libc::tm = std::mem::zeroed();
        (!libc::localtime_r(&seconds, &mut local).is_null()).then_some(local)?
    };
    let time = |moment: &libc::tm| format!("{:02}:{:02}:{:02}", moment.tm_hour, moment.tm_min, moment.tm_sec);
    let day = |moment: &libc::tm| {
        format!("{:04}-{:02}-{:02}", moment.tm_year + 1900, moment.tm_mon + 1, moment.tm_mday)
    };
    let zone = zone(&local);
    if local.tm_gmtoff == 0 {
        return Some(format!("{} {} UTC", day(&utc), time(&utc)));
    }
    let utc_day = if local.tm_mday == utc.tm_mday { String::new() } else { day(&utc) + " " };
    Some(format!("{} {} {zone} ({utc_day}{} UTC)", day(&local), time(&local), time(&utc)))
}

/// What people call the time zone; its distance from UTC where it has no name.
fn zone(local: &libc::tm) -> String {
    if !local.tm_zone.is_null() {
        // SAFETY: a name that the C library keeps.
        let name = unsafe { CStr::from_ptr(local.tm_zone) }.to_string_lossy();
        if name.starts_with(|first: char| first.is_ascii_alphabetic()) {
            return name.into_owned();
        }
    }
    let minutes = local.tm_gmtoff / 60;
    format!("{}{:02}:{:02}", if minutes < 0 { '-' } else { '+' }, minutes.abs() / 60, minutes.abs() % 60)
}

/// A moment such as `2026-03-01T09:30:00.250Z`, without its fraction.
fn parse(rfc3339: &str) -> Option<libc::tm> {
    let text = CString::new(rfc3339).ok()?;
    // SAFETY: all zero is a valid moment; both texts end with a zero.
    unsafe {
        let mut moment: libc::tm = std::mem::zeroed();
        let rest = libc::strptime(text.as_ptr(), c"%Y-%m-%dT%H:%M:%S".as_ptr(), &mut moment);
        let is_utc = !rest.is_null() && CStr::from_ptr(rest).to_bytes().ends_with(b"Z");
        is_utc.then_some(moment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_moment_stays_as_it_is() {
        assert_eq!(local("yesterday"), "yesterday");
        assert_eq!(local("2026-03-01T09:30:00+01:00"), "2026-03-01T09:30:00+01:00");
        assert_eq!(parse("2026-03-01T09:30:07.250Z").map(|moment| moment.tm_sec), Some(7));
    }
}
