//! Where the bytes of a file come from, as far as that is known: one disk, or one server. Nothing is configured, and
//! what cannot be told is not guessed: readers of a file system with many servers behind it would else
//! wait for each other in vain.

use std::ffi::CStr;
use std::sync::OnceLock;
use weir_profile::fnv1a;

/// A file as others have to know it, and its storage target, by which all who read from it on any node know it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Origin {
    pub(super) file: u64,
    pub(super) target: u64,
}

const FUSE_MAGIC: libc::__fsword_t = 0x6573_5546;

/// Of an open file. `None`: it comes from several places, or from one that is not known.
pub(super) fn origin(descriptor: i32) -> Option<Origin> {
    // SAFETY: zeros are valid descriptions, which outlive the calls.
    let (about, system) = unsafe {
        let (mut about, mut system): (libc::stat, libc::statfs) = (std::mem::zeroed(), std::mem::zeroed());
        let known = libc::fstat(descriptor, &mut about) == 0 && libc::fstatfs(descriptor, &mut system) == 0;
        known.then_some((about, system))
    }?;
    let target = if libc::major(about.st_dev) != 0 {
        // A file system on a device: of this machine, whichever container or network it is seen from.
        boot().map(|boot| hash(&[boot, &about.st_dev.to_le_bytes()]))
    } else if system.f_type == FUSE_MAGIC {
        path_info(descriptor).as_deref().and_then(brick).map(|brick| hash(&brick.map(str::as_bytes)))
    } else {
        None
    };
    let target = target?;
    // Inodes of two file systems may be alike.
    Some(Origin { file: hash(&[&target.to_le_bytes(), &about.st_ino.to_le_bytes()]), target })
}

/// What tells this machine from others since it started.
fn boot() -> Option<&'static [u8]> {
    static BOOT: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    let boot = BOOT.get_or_init(|| std::fs::read("/proc/sys/kernel/random/boot_id").ok());
    boot.as_deref().filter(|boot| !boot.is_empty())
}

/// Where GlusterFS has a file.
fn path_info(descriptor: i32) -> Option<String> {
    const NAME: &CStr = c"glusterfs.pathinfo";
    let mut text = [0u8; 4096];
    // SAFETY: a name that ends with a zero, and a buffer as long as said.
    let length = unsafe { libc::fgetxattr(descriptor, NAME.as_ptr(), text.as_mut_ptr().cast(), text.len()) };
    Some(String::from_utf8_lossy(text.get(..usize::try_from(length).ok()?)?).into_owned())
}

/// Of `(<DISTRIBUTE:a> <POSIX(/brick):host:/brick/file>)` the host and the brick. `None` if there are several: the file is
/// coded, or there are copies.
fn brick(path_info: &str) -> Option<[&str; 2]> {
    let mut bricks = path_info.split("<POSIX(").skip(1);
    let (brick, rest) = bricks.next()?.split_once("):")?;
    let (host, _) = rest.split_once(':')?;
    bricks.next().is_none().then_some([host, brick])
}

/// The parts do not run into each other.
fn hash(parts: &[&[u8]]) -> u64 {
    fnv1a(parts.iter().flat_map(|part| part.iter().chain(&[0])).copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_brick_is_named_if_it_is_the_only_one() {
        let whole = "(<DISTRIBUTE:weir> <POSIX(/b/0):node7:/b/0/in.dat>)";
        assert_eq!(brick(whole), Some(["node7", "/b/0"]));
        let copies = "(<REPLICATE:r> <POSIX(/b/0):node7:/b/0/a> <POSIX(/b/0):node8:/b/0/a>)";
        assert_eq!(brick(copies), None);
        for odd in ["", "(<DISTRIBUTE:weir>)", "<POSIX(", "<POSIX(/b", "<POSIX(/b):a"] {
            assert_eq!(brick(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn memory_is_no_target_and_a_device_is_one_for_all_its_files() {
        let of = |path: &str| origin(File::open(path).unwrap().as_raw_fd());
        assert_eq!(of("/proc/self/stat"), None);
        assert_eq!(origin(-1), None);
        let [one, other] =
            ["Cargo.toml", "README.md"].map(|name| of(&format!("{}/{name}", env!("CARGO_MANIFEST_DIR"))));
        // On a machine without such a device, as in some containers, there is none.
        assert_eq!(one.map(|one| one.target), other.map(|other| other.target));
        assert!(one.is_none() || one.map(|one| one.file) != other.map(|other| other.file));
    }
}
