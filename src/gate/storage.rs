//! On which storage a file lies, so that only jobs that share one take turns. Nothing is configured, and what cannot be told is
//! not guessed: then the job takes turns with nobody.

use std::fs;
use std::sync::OnceLock;

/// A storage by the name that all who share it give it, on every node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StorageName {
    pub(super) name: String,
    /// Where it is mounted here.
    pub(super) mount: String,
}

/// Where a file lies, as far as turns go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Shared(StorageName),
    /// In memory: nobody else's I/O is slower for it.
    Memory,
    /// Not known. A site may know it by where it is mounted.
    Unknown {
        mount: String,
    },
}

/// File systems that have no storage behind them.
const IN_MEMORY: &[&str] = &["tmpfs", "ramfs", "devtmpfs", "hugetlbfs", "proc", "sysfs", "mqueue", "devpts"];
/// File systems of a server: what is mounted says which, the same on every node.
const OF_A_SERVER: &[&str] =
    &["nfs", "nfs4", "lustre", "fuse.glusterfs", "ceph", "fuse.ceph-fuse", "gpfs", "cifs", "smb3"];
/// File systems of this machine, though their device number says nothing.
const OF_THIS_MACHINE: &[&str] =
    &["btrfs", "overlay", "zfs", "bcachefs", "9p", "virtiofs", "fuse.fuse-overlayfs", "aufs"];

/// Looks up the storage of an open file.
pub(super) fn of_descriptor(descriptor: i32) -> Found {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let found =
        mount_of(descriptor).and_then(|mount| mounts.lines().find_map(|line| Mount::parse(line, mount)));
    found.map_or_else(|| Found::Unknown { mount: String::new() }, |mount| mount.storage(boot()))
}

/// A line of `/proc/self/mountinfo`.
struct Mount<'a> {
    device: &'a str,
    at: String,
    kind: &'a str,
    source: String,
    options: &'a str,
}

/// How the mount of a file is known.
#[derive(Clone, Copy)]
enum MountKey {
    Number(u64),
    Device(u64),
}

/// The number of the mount that the file is on; older systems tell the device only.
fn mount_of(descriptor: i32) -> Option<MountKey> {
    // SAFETY: zeros are valid descriptions, which outlive the calls; an empty path is the descriptor itself.
    unsafe {
        let mut about: libc::statx = std::mem::zeroed();
        let asked = libc::STATX_MNT_ID;
        let answer = libc::statx(descriptor, c"".as_ptr(), libc::AT_EMPTY_PATH, asked, &mut about);
        if answer == 0 && about.stx_mask & asked != 0 {
            return Some(MountKey::Number(about.stx_mnt_id));
        }
        let mut about: libc::stat = std::mem::zeroed();
        (libc::fstat(descriptor, &mut about) == 0).then_some(MountKey::Device(about.st_dev))
    }
}

impl<'a> Mount<'a> {
    /// `36 35 98:0 /root /at options shared:1 - kind source options`, if it is the wanted one.
    fn parse(line: &'a str, wanted: MountKey) -> Option<Mount<'a>> {
        let (front, behind) = line.split_once(" - ")?;
        let mut front = front.split(' ');
        let (number, device) = (front.next()?.parse::<u64>().ok()?, front.nth(1)?);
        let at = unescaped(front.nth(1)?);
        let is_it = match wanted {
            MountKey::Number(wanted) => wanted == number,
            MountKey::Device(wanted) => device == format!("{}:{}", libc::major(wanted), libc::minor(wanted)),
        };
        let mut behind = behind.splitn(3, ' ');
        let (kind, source) = (behind.next()?, unescaped(behind.next()?));
        is_it.then(|| Mount { device, at, kind, source, options: behind.next().unwrap_or("") })
    }

    fn storage(self, boot: Option<&str>) -> Found {
        let name = match self.kind {
            kind if IN_MEMORY.contains(&kind) => return Found::Memory,
            kind if OF_A_SERVER.contains(&kind) => Some(format!("{kind} {}", self.source)),
            "beegfs" => self.beegfs_server().map(|server| format!("beegfs {server}")),
            "zfs" => {
                let pool = self.source.split('/').next().unwrap_or_default();
                boot.map(|boot| format!("{boot} zfs {pool}"))
            }
            kind if OF_THIS_MACHINE.contains(&kind) || !self.device.starts_with("0:") => {
                boot.map(|boot| format!("{boot} {kind} {}", self.device))
            }
            _ => None,
        };
        match name {
            Some(name) => Found::Shared(StorageName { name, mount: self.at }),
            None => Found::Unknown { mount: self.at },
        }
    }

    /// The management server, as the file system's own settings name it.
    fn beegfs_server(&self) -> Option<String> {
        let path = self.options.split(',').find_map(|option| option.strip_prefix("cfgFile="))?;
        let text = fs::read_to_string(path).ok()?;
        let value = text.lines().find_map(|line| line.trim().strip_prefix("sysMgmtdHost"))?;
        let server = value.trim_start().strip_prefix('=')?.trim();
        (!server.is_empty()).then(|| server.into())
    }
}

/// What tells this machine from others since it started: namespaces are one machine.
fn boot() -> Option<&'static str> {
    static BOOT: OnceLock<Option<String>> = OnceLock::new();
    let read = || fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    BOOT.get_or_init(|| read().map(|id| id.trim().into()).filter(|id: &String| !id.is_empty())).as_deref()
}

/// Blanks and the like stand as `\040`.
fn unescaped(text: &str) -> String {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.filter(|_| first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &behind[3..] } else { behind };
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    fn found(line: &str) -> Found {
        let mount = Mount::parse(line, MountKey::Number(36)).expect("the wanted mount");
        mount.storage(Some("boot"))
    }

    fn named(line: &str) -> String {
        match found(line) {
            Found::Shared(StorageName { name, .. }) => name,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn a_disk_belongs_to_its_machine_and_a_server_to_all() {
        let disk = "36 35 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw";
        assert_eq!(named(disk), "boot ext4 254:0");
        assert_eq!(
            found("36 35 254:1 /sub /data\\040disk rw - xfs /dev/vdb rw"),
            Found::Shared(StorageName { name: "boot xfs 254:1".into(), mount: "/data disk".into() })
        );
        let nfs = "36 35 0:52 / /home rw shared:7 master:1 - nfs4 server:/export/home rw,vers=4.2";
        assert_eq!(named(nfs), "nfs4 server:/export/home");
        assert_eq!(named("36 35 0:9 / /l rw - lustre 10.0.0.1@tcp:/work rw"), "lustre 10.0.0.1@tcp:/work");
        assert_eq!(named("36 35 0:9 / /g rw - fuse.glusterfs host:/vol rw"), "fuse.glusterfs host:/vol");
        assert_eq!(named("36 35 0:9 / /z rw - zfs tank/home/me rw"), "boot zfs tank");
        assert_eq!(named("36 35 0:31 / / rw - btrfs /dev/vdc rw,subvol=/@"), "boot btrfs 0:31");
    }

    #[test]
    fn memory_and_what_is_not_known_are_shared_with_nobody() {
        assert_eq!(found("36 35 0:25 / /dev/shm rw - tmpfs tmpfs rw"), Found::Memory);
        let unknown = Found::Unknown { mount: "/mnt".into() };
        assert_eq!(found("36 35 0:25 / /mnt rw - fuse.sshfs me@host: rw"), unknown);
        assert_eq!(found("36 35 0:25 / /mnt rw - beegfs beegfs_nodev rw"), unknown);
        for odd in ["", "36", "36 35 254:0 / / rw", "x 35 254:0 / / rw - ext4 a b", "36 35 - - - -"] {
            assert!(Mount::parse(odd, MountKey::Number(36)).is_none(), "{odd:?}");
        }
        let other = "37 35 254:0 / / rw - ext4 /dev/vda rw";
        assert!(Mount::parse(other, MountKey::Number(36)).is_none());
        assert!(Mount::parse(other, MountKey::Device(libc::makedev(254, 0))).is_some());
    }

    #[test]
    fn the_files_of_one_directory_lie_on_one_storage() {
        let of = |name: &str| {
            let file = fs::File::open(format!("{}/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
            of_descriptor(file.as_raw_fd())
        };
        assert_eq!(of("Cargo.toml"), of("README.md"));
        assert_eq!(of_descriptor(-1), Found::Unknown { mount: String::new() });
        let memory = fs::File::open("/proc/self/stat").unwrap();
        assert_eq!(of_descriptor(memory.as_raw_fd()), Found::Memory);
    }
}
