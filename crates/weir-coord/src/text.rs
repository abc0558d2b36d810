//! What others say, as it may be shown.

/// Control characters are spelt out, as JSON does it: to a terminal they are orders, and whoever wrote them is not
/// its user.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() {
            true => shown.push_str(&format!("\\u{:04x}", u32::from(character))),
            false => shown.push(character),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_to_a_terminal_are_spelt_out() {
        assert_eq!(
            printable("grün \u{1b}[2J\u{9b}2J\r\n\u{7f}"),
            "grün \\u001b[2J\\u009b2J\\u000d\\u000a\\u007f"
        );
    }
}
