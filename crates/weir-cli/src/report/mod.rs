//! `weir report`: the summary of a job, from its profile or from what its ranks left behind.

mod advice;
mod errors;
mod exchange;
mod files;
mod moment;
mod summary;
pub(crate) mod text;
mod turns;

pub(crate) use summary::{Dress, summary};

use crate::run::WRITE_LIMIT;
use crate::{Outcome, output};
use serde::Deserialize;
use std::fs;
use std::io::{IsTerminal, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weir_coord::text::printable;
use weir_profile::Error;
use weir_profile::job::{self, Merged};
use weir_profile::profile::{JSON_SCHEMA, Profile, SCHEMA};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Profiles, records, directories of profiles (WEIR_DIR) or jobs' folders of records
    #[arg(value_name = "FILE|DIR", default_value = ".")]
    paths: Vec<PathBuf>,
    /// Print the profile itself as JSON instead of the summary; of several, one after the other
    #[arg(long)]
    json: bool,
    /// Print the JSON Schema of profiles
    #[arg(long)]
    schema: bool,
}

/// Jobs that are listed before the summary of the newest.
const LISTED_JOBS: usize = 10;

pub(crate) fn run(args: &Args) -> Outcome {
    if args.schema {
        output::print(JSON_SCHEMA)?;
        return Ok(ExitCode::SUCCESS);
    }
    // One that cannot be read does not keep the others from being shown.
    let mut failed = None;
    for (number, path) in args.paths.iter().enumerate() {
        match report(path, args.json) {
            Ok(text) if number > 0 && !args.json => output::print(&format!("\n{text}"))?,
            Ok(text) => output::print(&text)?,
            Err(error) => _ = failed.replace(error).inspect(|earlier| output::say(earlier)),
        }
    }
    failed.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// The report on one path, in full.
fn report(path: &Path, as_json: bool) -> Result<String, String> {
    let metadata = fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
    if metadata.is_dir() {
        // Of jobs that run on this node, and of those that were killed just now.
        weir_profile::helper::flush_all(WRITE_LIMIT);
    }
    let (list, profile) =
        if metadata.is_dir() { newest_in(path)? } else { (String::new(), load_named(path)?) };
    if as_json {
        let json = serde_json::to_string_pretty(&profile).map_err(|error| error.to_string())?;
        return Ok(escaped(&json) + "\n");
    }
    Ok(list + &summary(&profile, dress(std::io::stdout().is_terminal())))
}

/// The same JSON without DEL and the control characters behind it, which JSON lets stand and terminals obey.
fn escaped(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for part in json.split_inclusive('\n') {
        shown += &printable(part.trim_end_matches('\n'));
        shown += if part.ends_with('\n') { "\n" } else { "" };
    }
    shown
}

pub(crate) fn dress(terminal: bool) -> Dress {
    Dress { bold: terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) }
}

/// No profile is larger; what is, or has no end, is refused before it fills the memory.
const MAX_PROFILE_BYTES: u64 = 256 << 20;

/// What the user names: a pipe is waited for.
fn load_named(path: &Path) -> Result<Profile, String> {
    read_in(path, fs::File::open(path))
}

/// A profile or a single record that was found in a directory, where anybody may have put it.
pub(crate) fn load(path: &Path) -> Result<Profile, String> {
    read_in(path, weir_profile::open_regular(path))
}

fn read_in(path: &Path, file: std::io::Result<fs::File>) -> Result<Profile, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut bytes = Vec::new();
    let file = file.map_err(failed)?;
    let length = file.take(MAX_PROFILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if length as u64 > MAX_PROFILE_BYTES {
        return Err(format!("{}: larger than any profile ({} MiB)", path.display(), MAX_PROFILE_BYTES >> 20));
    }
    if bytes.starts_with(b"WEIRREC") {
        return job::merge_record(path).map_err(|error| error.to_string());
    }
    parse(path, &bytes)
}

/// What profiles of every schema have.
#[derive(Deserialize)]
struct Outline {
    weir: OutlineWeir,
}

#[derive(Deserialize)]
struct OutlineWeir {
    schema: u64,
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Profile, String> {
    let name = path.display();
    if bytes.is_empty() {
        return Err(format!("{name}: an empty file"));
    }
    let outline: Outline = serde_json::from_slice(bytes).map_err(|error| match error.is_eof() {
        true => format!("{name}: ends in the middle, as if it was cut off: {error}"),
        false => format!("{name}: neither a profile nor a record: {error}"),
    })?;
    let schema = outline.weir.schema;
    let profile = serde_json::from_slice(bytes).map_err(|error| match schema > SCHEMA {
        true => format!(
            "{name}: profile of schema {schema} cannot be read by this version, which knows {SCHEMA}: {error}"
        ),
        false => format!("{name}: not a complete profile: {error}"),
    })?;
    if schema > SCHEMA {
        output::say(format_args!(
            "{name}: profile of schema {schema}, this version knows {SCHEMA}; showing what it understands"
        ));
    }
    Ok(profile)
}

/// All jobs of a directory, as a list when there are several, and the profile of the newest. What jobs
/// that are over left behind is merged and written first.
fn newest_in(dir: &Path) -> Result<(String, Profile), String> {
    let found = job::find(dir).map_err(|error| error.to_string())?;
    let mut jobs: Vec<(String, Profile)> = Vec::new();
    for folder in &found.folders {
        match leftovers(folder) {
            Ok(merged) => jobs.extend(merged),
            Err(error) => output::say(error),
        }
    }
    // Again: a job may have written its own meanwhile. A job's own folder is gone when it is merged.
    let profiles = job::find(dir).map(|found| found.profiles).unwrap_or_default();
    let written: Vec<String> = jobs.iter().map(|(name, _)| name.clone()).collect();
    for path in profiles.iter().filter(|path| !written.contains(&file_name(path))) {
        match load(path) {
            Ok(profile) => jobs.push((file_name(path), profile)),
            Err(error) => output::say(error),
        }
    }
    jobs.sort_by(|(a_name, a), (b_name, b)| b.job.start.cmp(&a.job.start).then_with(|| a_name.cmp(b_name)));
    let list = if jobs.len() > 1 { list(&jobs) } else { String::new() };
    let newest = jobs.into_iter().next();
    let (_, newest) =
        newest.ok_or_else(|| format!("{}: no profile and no record of a job here", dir.display()))?;
    Ok((list, newest))
}

/// What a folder of records holds: written if it is this user's, and only shown if it is another's.
fn leftovers(folder: &Path) -> Result<Vec<(String, Profile)>, Error> {
    let owner = fs::metadata(folder).map_err(|error| Error::new(folder, error))?.uid();
    // SAFETY: asks for a number.
    if owner == unsafe { libc::geteuid() } {
        let merged = job::merge_folder(folder, false)?;
        return Ok(merged.0.into_iter().filter_map(|launch| settle(folder, launch)).collect());
    }
    let shown = job::look_into_folder(folder)?;
    if !shown.is_empty() {
        let name = folder.display();
        output::say(format_args!(
            "{name}: records of another user (uid {owner}), shown and not written; `weir merge` makes the profile theirs"
        ));
    }
    Ok(shown.into_iter().map(|profile| (file_name(folder), profile)).collect())
}

/// Writes the profile of a job that is over; one that may still run is only shown.
fn settle(folder: &Path, merged: Merged) -> Option<(String, Profile)> {
    if !merged.did_io {
        return None;
    }
    let profile = merged.profile.clone();
    if merged.is_live() {
        return Some((file_name(folder), profile));
    }
    match merged.write(&job::directory_of(folder)) {
        Ok(Some(path)) => {
            output::say(format_args!(
                "job {} {}; merged into {}",
                profile.job.id,
                profile.job.ended,
                path.display()
            ));
            Some((file_name(&path), profile))
        }
        Ok(None) => None,
        Err(error) => {
            output::say(format_args!("{error}; the records stay in {}", folder.display()));
            Some((file_name(folder), profile))
        }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn list(jobs: &[(String, Profile)]) -> String {
    let mut out = String::new();
    for (name, profile) in jobs.iter().take(LISTED_JOBS) {
        let job = &profile.job;
        let moved: f64 = profile.ranks.iter().flat_map(|rank| rank.moved_bytes()).sum();
        out += &format!(
            "{}  {:>9}  {:>10}  {:<40}  {}\n",
            printable(&job.start),
            text::seconds(job.duration_s),
            text::bytes(moved),
            printable(name),
            printable(&job.ended)
        );
    }
    if jobs.len() > LISTED_JOBS {
        out += &format!("… and {} older\n", jobs.len() - LISTED_JOBS);
    }
    out + "\n"
}
