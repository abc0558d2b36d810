//! Moments as people write them.

/// RFC 3339 in UTC with milliseconds: `2026-03-01T09:30:00.250Z`.
pub(crate) fn rfc3339(realtime_ns: u64) -> String {
    let (seconds, milliseconds) = (realtime_ns / 1_000_000_000, realtime_ns / 1_000_000 % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

/// Year, month and day of a day since 1970. Counted from March, leap days fall at the end of a year
/// and months follow the pattern 31, 30, 31, 30, 31 (153 days) twice and a half.
fn civil(days_since_1970: u64) -> (u64, u64, u64) {
    let days = days_since_1970 + 719_468; // since 1 March of the year 0
    let (era, day) = (days / 146_097, days % 146_097); // 400 years each
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    /// Expected values are those of `date -u -d @SECONDS +%FT%TZ`.
    #[test]
    fn moments_read_as_dates() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_827_696, "2000-02-29T12:34:56.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (1_767_225_599, "2025-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(seconds * 1_000_000_000), text);
        }
        assert_eq!(rfc3339(1_234_567), "1970-01-01T00:00:00.001Z");
    }
}
