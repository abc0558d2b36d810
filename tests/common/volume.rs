//! File systems of the trials' own, on loop devices.

use super::{Stop, Verdict};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted file system, gone at the end of the trial.
pub(crate) struct Volume {
    pub(crate) at: PathBuf,
    image: PathBuf,
    is_frozen: bool,
}

impl Volume {
    /// `kind` is `ext4`, `xfs` or `btrfs`, of so many mebibytes.
    pub(crate) fn mount(name: &str, kind: &str, mebibytes: u64) -> Verdict<Volume> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("volumes").join(name.replace("::", "/"));
        let (image, at) = (folder.join("image"), folder.join("mount"));
        fs::create_dir_all(&at)?;
        fs::File::create(&image)?.set_len(mebibytes << 20)?;
        let options: &[&str] = match kind {
            "ext4" => &["-q", "-F"],
            "xfs" => &["-q", "-f"],
            // Small, and with its tables among the data: it is really full then.
            _ => &["-q", "-f", "--mixed"],
        };
        let made = Command::new(format!("mkfs.{kind}")).args(options).arg(&image).output();
        if !made.is_ok_and(|made| made.status.success()) {
            return Err(Stop::Skip(format!("no mkfs.{kind} for a file system of {mebibytes} MiB")));
        }
        let options = if kind == "btrfs" { "loop,commit=1" } else { "loop" };
        let mounted = Command::new("mount").args(["-o", options]).args([&image, &at]).output()?;
        if !mounted.status.success() {
            return Err(Stop::Skip(format!("may not mount {kind} (needs root and the kernel's support)")));
        }
        Ok(Volume { at, image, is_frozen: false })
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Verdict<bool> {
        Ok(Command::new(program).args(arguments).arg(&self.at).output()?.status.success())
    }

    /// Whatever is stored from now on waits.
    pub(crate) fn freeze(&mut self) -> Verdict {
        self.is_frozen = self.run("fsfreeze", &["-f"])?;
        if self.is_frozen { Ok(()) } else { Err(Stop::Skip("cannot freeze a file system".into())) }
    }

    pub(crate) fn thaw(&mut self) -> Verdict {
        self.is_frozen = !self.run("fsfreeze", &["-u"])?;
        if self.is_frozen { Err("cannot thaw the file system".into()) } else { Ok(()) }
    }

    /// As after an error of the device that it cannot bear.
    pub(crate) fn shut_down(&mut self) -> Verdict {
        let done = self.run("xfs_io", &["-x", "-c", "shutdown"])?;
        if done { Ok(()) } else { Err(Stop::Skip("xfs_io cannot shut a file system down".into())) }
    }

    pub(crate) fn make_read_only(&mut self) -> Verdict {
        let done = self.run("mount", &["-o", "remount,ro"])?;
        if done { Ok(()) } else { Err("cannot make the file system read-only".into()) }
    }

    /// With a file of zeros.
    pub(crate) fn fill(&mut self) -> Verdict {
        let file = self.at.join("filler");
        let mut command = Command::new("dd");
        command.arg("if=/dev/zero").arg(format!("of={}", file.display())).args(["bs=64k", "oflag=append"]);
        // To the last block: in smaller pieces when the large ones fit no more.
        command.output()?;
        Command::new("sh").args(["-c", "head -c 1M /dev/zero >>\"$1\"", "sh"]).arg(&file).output()?;
        self.run("sync", &["-f"]).map(drop)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if self.is_frozen {
            let _ = self.thaw();
        }
        // Nothing to be done if it fails.
        let _ = self.run("umount", &["-l"]);
        let _ = fs::remove_file(&self.image);
    }
}
