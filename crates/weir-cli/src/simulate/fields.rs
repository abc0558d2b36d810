//! Reading a scenario's JSON. What is wrong is said with the path of the field (`jobs[3].compute`), what may stand
//! there and what does.

use serde_json::{Map, Value};
use std::ops::RangeInclusive;

/// Thirty years: beyond that a time is a mistake.
pub(super) const MAX_SECONDS: f64 = 1e9;

/// The text as JSON. `longest` names lists at the top and how long each may be: one that is longer is refused
/// before it fills the memory.
pub(super) fn parse(text: &str, longest: &[(&str, usize)]) -> Result<Value, String> {
    walk(text.as_bytes(), |levels| match levels {
        [Level::Object { key }, Level::List { index }] => {
            match longest.iter().find(|(name, most)| name.as_bytes() == *key && index >= most) {
                Some((name, most)) => Err(format!("{name}: more than {most} are not accepted")),
                None => Ok(()),
            }
        }
        _ => Ok(()),
    })?;
    serde_json::from_str(text).map_err(|error| not_json(text, &error))
}

/// serde_json says where the text stops being JSON (at a NaN, say), but not in which field that is.
fn not_json(text: &str, error: &serde_json::Error) -> String {
    let lines_before = text.split_inclusive('\n').take(error.line().saturating_sub(1));
    let end = lines_before.map(str::len).sum::<usize>() + error.column().saturating_sub(1);
    let levels = walk(&text.as_bytes()[..end.min(text.len())], |_| Ok(())).unwrap_or_default();
    let path = levels.iter().fold(String::new(), |path, level| match level {
        Level::Object { key } if path.is_empty() => String::from_utf8_lossy(key).into_owned(),
        Level::Object { key: b"" } => path,
        Level::Object { key } => format!("{path}.{}", String::from_utf8_lossy(key)),
        Level::List { index } => format!("{path}[{index}]"),
    });
    if path.is_empty() { format!("not JSON: {error}") } else { format!("{path}: not JSON: {error}") }
}

/// What is open at some point of a text.
enum Level<'a> {
    Object { key: &'a [u8] },
    List { index: usize },
}

/// Follows a text to its end, JSON or not; `at_comma` is asked whether to go on.
fn walk<'a>(
    text: &'a [u8],
    mut at_comma: impl FnMut(&[Level<'a>]) -> Result<(), String>,
) -> Result<Vec<Level<'a>>, String> {
    let (mut levels, mut string, mut at) = (Vec::new(), &b""[..], 0);
    while at < text.len() {
        match text[at] {
            b'"' => {
                let begin = at + 1;
                at = begin;
                while at < text.len() && text[at] != b'"' {
                    at += if text[at] == b'\\' { 2 } else { 1 };
                }
                string = &text[begin..at.min(text.len())];
            }
            b'{' => levels.push(Level::Object { key: b"" }),
            b'[' => levels.push(Level::List { index: 0 }),
            b'}' | b']' => drop(levels.pop()),
            b':' => {
                if let Some(Level::Object { key }) = levels.last_mut() {
                    *key = string;
                }
            }
            b',' => {
                if let Some(Level::List { index }) = levels.last_mut() {
                    *index += 1;
                }
                at_comma(&levels)?;
            }
            _ => {}
        }
        at += 1;
    }
    Ok(levels)
}

/// The fields of a JSON object.
pub(super) struct Fields<'a> {
    object: &'a Map<String, Value>,
    /// What stands before the name of a field.
    prefix: String,
}

impl<'a> Fields<'a> {
    /// Those of the scenario as a whole.
    pub(super) fn of_scenario(scenario: &'a Value, known: &[&str]) -> Result<Self, String> {
        Self::checked(scenario, "the scenario", String::new(), known)
    }

    pub(super) fn of(value: &'a Value, path: &str, known: &[&str]) -> Result<Self, String> {
        Self::checked(value, path, format!("{path}."), known)
    }

    fn checked(value: &'a Value, path: &str, prefix: String, known: &[&str]) -> Result<Self, String> {
        let object = value.as_object().ok_or_else(|| {
            let names = known.join("\": …, \"");
            expected(path, &format!("an object, {{\"{names}\": …}}"), value)
        })?;
        match object.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(format!("{prefix}{key}: no such field; there are {}", known.join(", "))),
            None => Ok(Fields { object, prefix }),
        }
    }

    pub(super) fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name)
    }

    /// What a field that must be there says to one of the readers below.
    pub(super) fn read<T>(
        &self,
        name: &str,
        reader: impl Fn(&'a Value, &str) -> Result<T, String>,
    ) -> Result<T, String> {
        self.read_if_given(name, reader)?.ok_or_else(|| format!("{}: missing", self.path(name)))
    }

    pub(super) fn read_if_given<T>(
        &self,
        name: &str,
        reader: impl Fn(&'a Value, &str) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        self.get(name).map(|value| reader(value, &self.path(name))).transpose()
    }
}

pub(super) fn expected(path: &str, what: &str, found: &Value) -> String {
    let found = match found {
        Value::Object(_) => "an object".into(),
        Value::Array(_) => "a list".into(),
        other => other.to_string(),
    };
    format!("{path}: must be {what}, not {found}")
}

pub(super) fn number_in(value: &Value, path: &str, range: RangeInclusive<f64>) -> Result<f64, String> {
    value.as_f64().filter(|number| range.contains(number)).ok_or_else(|| {
        let what = match (*range.start(), *range.end()) {
            (f64::MIN, f64::MAX) => "a number".into(),
            (low, f64::MAX) => format!("a number, {low} or more"),
            (low, high) => format!("a number from {low} to {high}"),
        };
        expected(path, &what, value)
    })
}

pub(super) fn positive(value: &Value, path: &str) -> Result<f64, String> {
    let number = value.as_f64().filter(|&number| number > 0.0);
    number.ok_or_else(|| expected(path, "a number above 0, such as 1 or 2.5e9", value))
}

pub(super) fn seconds(value: &Value, path: &str) -> Result<f64, String> {
    let number = value.as_f64().filter(|number| (0.0..=MAX_SECONDS).contains(number));
    number.ok_or_else(|| {
        expected(path, &format!("a number of seconds from 0 to {MAX_SECONDS:e}, such as 12.5"), value)
    })
}

/// 4.0 is as good as 4: many programs write JSON numbers that way.
pub(super) fn whole(value: &Value, path: &str, least: u64) -> Result<u64, String> {
    let as_float =
        || value.as_f64().filter(|x| x.fract() == 0.0 && (0.0..=9e15).contains(x)).map(|x| x as u64);
    let number = value.as_u64().or_else(as_float).filter(|&number| number >= least);
    number.ok_or_else(|| expected(path, &format!("a whole number, {least} or more"), value))
}

/// At least one.
pub(super) fn count(value: &Value, path: &str) -> Result<u64, String> {
    whole(value, path, 1)
}

pub(super) fn text<'a>(value: &'a Value, path: &str) -> Result<&'a str, String> {
    value.as_str().ok_or_else(|| expected(path, "a text, such as \"a\"", value))
}

/// With somebody in it.
pub(super) fn list<'a>(value: &'a Value, path: &str) -> Result<&'a [Value], String> {
    match value.as_array().map(Vec::as_slice) {
        Some([]) => Err(format!("{path}: empty, there must be at least one")),
        Some(list) => Ok(list),
        None => Err(expected(path, "a list, [ … ]", value)),
    }
}

/// One of a few words, and what it stands for.
pub(super) fn word<T: Copy>(value: &Value, path: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| value.as_str() == Some(word));
    found.map(|&(_, meaning)| meaning).ok_or_else(|| {
        let words: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
        expected(path, &words.join(" or "), value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_json_is_told_by_its_path() {
        for (text, told) in [
            (r#"{"a": NaN}"#, "a: not JSON: "),
            (r#"{"jobs": [{"x": 1}, {"x": {"y,{": "\"[", "z": 1e999}}]}"#, "jobs[1].x.z: not JSON: number"),
            ("{\"a\": 1,\n \"b\": [0, 1,\n oops]}", "b[2]: not JSON: "),
            (r#"{"a": 1, "b": [1, 2"#, "b[1]: not JSON: "),
            ("", "not JSON: "),
            ("\u{e9}", "not JSON: "),
            (r#"{"a": 1} extra"#, "not JSON: "),
        ] {
            let complaint = parse(text, &[]).expect_err("no JSON");
            assert!(complaint.starts_with(told), "{text}: {complaint}");
        }
    }

    #[test]
    fn long_lists_are_refused_before_they_are_read() {
        let list = |name: &str, length: usize| format!("{{\"{name}\": [{}", vec!["[0,0]"; length].join(","));
        let refused = |text: &str| parse(text, &[("jobs", 3)]).expect_err("no JSON");
        assert_eq!(refused(&list("jobs", 4)), "jobs: more than 3 are not accepted");
        assert!(refused(&list("jobs", 3)).contains("not JSON"));
        assert!(refused(&list("others", 4)).contains("not JSON"));
    }

    #[test]
    fn unknown_fields_are_answered_with_the_known() {
        let value = serde_json::json!({"a": 1, "c": 2});
        let complaint = Fields::of(&value, "jobs[0]", &["a", "b"]).err();
        assert_eq!(complaint.as_deref(), Some("jobs[0].c: no such field; there are a, b"));
    }
}
