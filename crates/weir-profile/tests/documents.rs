//! The published schema and `docs/PROFILE.md` say what the code does. Where they drift this fails;
//! `WEIR_BLESS=1 cargo test -p weir-profile --test documents` writes the counters into both anew.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use weir_profile::counters::{Counter, Merge, Module};
use weir_profile::settings::{PROGRAM_ENDINGS, PROGRAM_PARTS, SYSTEM_DIRECTORIES};

fn document(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(document(name)).unwrap()
}

fn check(name: &str, actual: &str, expected: &str) {
    if actual != expected && std::env::var_os("WEIR_BLESS").is_some() {
        fs::write(document(name), expected).unwrap();
        return;
    }
    assert!(actual == expected, "docs/{name} has drifted: run with WEIR_BLESS=1 and look at the difference");
}

fn public_counters(module: Module) -> impl Iterator<Item = &'static Counter> {
    module.counters().iter().filter(|counter| counter.merge != Merge::State)
}

fn is_count(counter: &Counter) -> bool {
    matches!(counter.merge, Merge::Sum | Merge::Max)
}

#[test]
fn the_schema_has_every_counter() {
    let actual = read("profile.schema.json");
    let mut schema: Value = serde_json::from_str(&actual).unwrap();
    for module in Module::ALL {
        let properties: Map<String, Value> = public_counters(module)
            .map(|counter| {
                let kind = if is_count(counter) { "integer" } else { "number" };
                let value = json!({ "description": counter.doc.trim(), "type": kind, "minimum": 0 });
                (counter.name.to_string(), value)
            })
            .collect();
        let names: Vec<&str> = public_counters(module).map(|counter| counter.name).collect();
        let (name, all) = (module.name(), format!("{}_ALL", module.name()));
        schema["$defs"][all] = json!({ "allOf": [{ "$ref": format!("#/$defs/{name}") }], "required": names });
        schema["$defs"][name] = json!({
            "description": format!("Counters of the {name} module."),
            "type": "object",
            "properties": properties,
        });
    }
    let expected = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    check("profile.schema.json", &actual, &expected);
}

const BEGIN: &str = "<!-- counters: begin -->\n";
const END: &str = "<!-- counters: end -->";

#[test]
fn the_document_has_every_counter() {
    let actual = read("PROFILE.md");
    let (before, rest) = actual.split_once(BEGIN).expect("the mark where counters begin");
    let (_, after) = rest.split_once(END).expect("the mark where counters end");
    let mut tables = String::new();
    for module in Module::ALL {
        tables +=
            &format!("\n### {}\n\n| counter | over ranks | what it counts |\n|---|---|---|\n", module.name());
        for counter in public_counters(module) {
            let rule = match counter.merge {
                Merge::Sum => "sum",
                Merge::Max => "largest",
                Merge::Seconds => "sum, seconds",
                Merge::Longest => "longest, seconds",
                Merge::First => "earliest, seconds",
                Merge::Last => "latest, seconds",
                Merge::State => unreachable!("not public"),
            };
            tables += &format!("| `{}` | {rule} | {} |\n", counter.name, counter.doc.trim());
        }
    }
    check("PROFILE.md", &actual, &format!("{before}{BEGIN}{tables}\n{END}{after}"));
}

const BEGIN_LEFT_OUT: &str = "<!-- left out: begin -->\n";
const END_LEFT_OUT: &str = "<!-- left out: end -->";

#[test]
fn the_document_has_what_is_left_out() {
    let actual = read("PROFILE.md");
    let (before, rest) = actual.split_once(BEGIN_LEFT_OUT).expect("the mark where the list begins");
    let (_, after) = rest.split_once(END_LEFT_OUT).expect("the mark where the list ends");
    let named = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let list = format!(
        "- files beneath {};\n- files whose names end in {}, and those with one of {} in their path;\n",
        named(SYSTEM_DIRECTORIES),
        named(PROGRAM_ENDINGS),
        named(PROGRAM_PARTS)
    );
    check("PROFILE.md", &actual, &format!("{before}{BEGIN_LEFT_OUT}{list}{END_LEFT_OUT}{after}"));
}

/// Every key of the schema with its sentence, as `phases.list[].start_s`.
fn keys(schema: &Value, path: &str, found: &mut BTreeMap<String, String>) {
    if let Some(items) = schema.get("items") {
        keys(items, &format!("{path}[]"), found);
    }
    for (name, value) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if let Some(sentence) = value.get("description").and_then(Value::as_str) {
            found.insert(path.clone(), sentence.to_string());
        }
        keys(value, &path, found);
    }
}

#[test]
fn the_document_has_every_key_of_the_schema() {
    let schema: Value = serde_json::from_str(&read("profile.schema.json")).unwrap();
    let mut expected = BTreeMap::new();
    keys(&schema, "", &mut expected);
    for name in ["direction", "directions"] {
        keys(&schema["$defs"][name], "histograms.*", &mut expected);
    }
    expected.retain(|key, _| {
        let distribution = key.ends_with("size_bytes") || key.ends_with("latency_s");
        !(key.starts_with("modules.") || key.starts_with("histograms.") && distribution)
    });
    let document = read("PROFILE.md");
    let (before_counters, _) = document.split_once(BEGIN).unwrap();
    let row = |line: &str| {
        let (key, sentence) = line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | ")?;
        Some((key.to_string(), sentence.to_string()))
    };
    let documented: BTreeMap<String, String> = before_counters.lines().filter_map(row).collect();
    for (key, sentence) in &expected {
        assert_eq!(documented.get(key), Some(sentence), "{key}");
    }
    for key in documented.keys() {
        assert!(expected.contains_key(key), "docs/PROFILE.md speaks of {key}, which is not in the schema");
    }
}
