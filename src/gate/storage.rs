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
/// File systems of a server that are called the same on every node.
const OF_A_SERVER: &[&str] = &["fuse.ceph-fuse", "gpfs"];
/// File systems of this machine, though their device number says nothing.
const OF_THIS_MACHINE: &[&str] =
    &["btrfs", "overlay", "zfs", "bcachefs", "9p", "virtiofs", "fuse.fuse-overlayfs", "aufs"];

/// Looks up the storage of an open file.
pub(super) fn of_descriptor(descriptor: i32) -> Found {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let found =
        mount_of(descriptor).and_then(|mount| mounts.lines().find_map(|line| Mount::parse(line, mount)));
    let volumes = || fs::read_to_string("/proc/fs/nfsfs/volumes").unwrap_or_default();
    found.map_or_else(|| Found::Unknown { mount: String::new() }, |mount| mount.storage(boot(), volumes))
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

    /// `nfs_volumes` is what the kernel's NFS client says of its mounts.
    fn storage(self, boot: Option<&str>, nfs_volumes: impl FnOnce() -> String) -> Found {
        let name = match self.kind {
            kind if IN_MEMORY.contains(&kind) => return Found::Memory,
            kind if OF_A_SERVER.contains(&kind) => Some(format!("{kind} {}", self.source)),
            "nfs" | "nfs4" => Some(self.nfs(&nfs_volumes())),
            "lustre" => Some(self.lustre()),
            "ceph" => Some(self.ceph()),
            "fuse.glusterfs" => Some(self.glusterfs()),
            "cifs" | "smb3" => Some(self.cifs()),
            "beegfs" => self.beegfs_server().map(|server| format!("beegfs {}", host(&server))),
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

    /// NFS: the server's address and its number of the file system, as the kernel has them: the same however the server is called
    /// and whichever of its directories is mounted. Where the kernel does not say, address and directory.
    fn nfs(&self, volumes: &str) -> String {
        if let Some((address, file_system)) = volumes.lines().find_map(|line| nfs_volume(line, self.device)) {
            return format!("nfs {address} {file_system}");
        }
        match (self.option("addr"), self.source.split_once(":/")) {
            (Some(address), Some((_, path))) => format!("nfs {address}:/{path}"),
            (_, Some((server, path))) => format!("nfs {}:/{path}", host(server)),
            _ => format!("nfs {}", self.source),
        }
    }

    /// Lustre: `10.0.0.1@tcp:10.0.0.2@tcp:/work/me`, where the addresses are those of the management servers in any order, and
    /// what follows the name of the file system is the directory that is mounted.
    fn lustre(&self) -> String {
        let Some((servers, path)) = self.source.split_once(":/") else {
            return format!("lustre {}", self.source);
        };
        format!("lustre {}:/{}", in_order(servers, &[':', ',']), first_part(path))
    }

    /// Ceph: the cluster, by its number (`user@number.name=/path`) or by its monitors in any order (`10.0.0.1,10.0.0.2:/path`).
    fn ceph(&self) -> String {
        if let Some((_, cluster)) = self.source.split_once('@') {
            let number = cluster.split(['.', '=']).next().unwrap_or_default();
            return match (number, self.option("mon_addr")) {
                ("", Some(monitors)) => format!("ceph {}", in_order(monitors, &['/'])),
                ("", None) => format!("ceph {}", self.source),
                _ => format!("ceph {number}"),
            };
        }
        let monitors = self.source.split_once(":/").map_or(self.source.as_str(), |(monitors, _)| monitors);
        format!("ceph {}", in_order(monitors, &[',']))
    }

    /// GlusterFS: `server:/volume/directory`. Nodes that name another server of the volume do not know that it is the same.
    fn glusterfs(&self) -> String {
        match self.source.split_once(':') {
            Some((server, path)) => format!("glusterfs {}:/{}", host(server), first_part(path)),
            None => format!("glusterfs {}", self.source),
        }
    }

    /// CIFS: `//server/share/directory`, in any case.
    fn cifs(&self) -> String {
        let path = self.source.trim_start_matches(['/', '\\']);
        let (server, path) = path.split_once(['/', '\\']).unwrap_or((path, ""));
        let share = first_part(path).to_lowercase();
        format!("cifs {} {share}", self.option("addr").map_or_else(|| host(server), String::from))
    }

    /// The value of a mount option.
    fn option(&self, name: &str) -> Option<&'a str> {
        let value = |option: &'a str| option.strip_prefix(name)?.strip_prefix('=');
        self.options.split(',').find_map(value).filter(|value| !value.is_empty())
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

/// Address of the server and its number of the file system, from a line of `/proc/fs/nfsfs/volumes` that is about the device:
/// `v4 0a000001  801 0:52         5ed5fcfa:0                        no`.
fn nfs_volume<'a>(line: &'a str, device: &str) -> Option<(&'a str, &'a str)> {
    let mut words = line.split_whitespace();
    let (address, _port) = (words.nth(1)?, words.next()?);
    let (of, file_system) = (words.next()?, words.next()?);
    // Older kernels cut the number off: what is left may be that of several file systems.
    let is_whole = file_system.contains(':') && file_system.len() != CUT_FSID_BYTES;
    (of == device && is_whole).then_some((address, file_system))
}

/// How long the number of an NFS file system is where older kernels have cut it off.
const CUT_FSID_BYTES: usize = 16;

/// A host's name as all write it. What follows the first dot stays: hosts of two domains are two.
fn host(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// The parts of a text in one order, each once.
fn in_order(text: &str, separators: &[char]) -> String {
    let mut parts: Vec<&str> = text.split(separators).filter(|part| !part.is_empty()).collect();
    parts.sort_unstable();
    parts.dedup();
    parts.join(",")
}

/// The first directory of a path.
fn first_part(path: &str) -> &str {
    path.trim_start_matches('/').split('/').next().unwrap_or_default()
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
        mount.storage(Some("boot"), || VOLUMES.into())
    }

    /// Two directories of one server, a second file system of it, and what another kernel would not say.
    const VOLUMES: &str = "\
NV SERVER   PORT DEV          FSID                              FSC
v4 0a000001  801 0:52         5ed5fcfa:0                        no
v4 0a000001  801 0:53         5ed5fcfa:0                        no
v3 0a000001  801 0:54         77:1                              no
v4 0a000002  801 0:55    7b1bcb0f6ec0bc49  no
v4 0a0000
";

    fn named(line: &str) -> String {
        match found(line) {
            Found::Shared(StorageName { name, .. }) => name,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn a_disk_belongs_to_its_machine() {
        let disk = "36 35 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw";
        assert_eq!(named(disk), "boot ext4 254:0");
        assert_eq!(
            found("36 35 254:1 /sub /data\\040disk rw - xfs /dev/vdb rw"),
            Found::Shared(StorageName { name: "boot xfs 254:1".into(), mount: "/data disk".into() })
        );
        assert_eq!(named("36 35 0:9 / /z rw - zfs tank/home/me rw"), "boot zfs tank");
        assert_eq!(named("36 35 0:31 / / rw - btrfs /dev/vdc rw,subvol=/@"), "boot btrfs 0:31");
    }

    /// Whether mounts of this kind on two nodes are one storage, each with its source and its options.
    fn is_one(kind: &str, here: (&str, &str), there: (&str, &str)) -> bool {
        let name = |(source, options)| {
            named(&format!("36 35 0:9 / /mnt rw shared:7 - {kind} {source} rw,{options}"))
        };
        let names = [name(here), name(there)];
        assert!(names.iter().all(|name| !name.contains("Unknown")), "{names:?}");
        names[0] == names[1]
    }

    #[test]
    fn an_nfs_file_system_is_one_by_whatever_name_and_directory() {
        let nfs = |device: &str, source: &str| {
            named(&format!("36 35 {device} / /home rw - nfs4 {source} rw,vers=4.2,addr=10.0.0.1"))
        };
        assert_eq!(nfs("0:52", "server:/export/home"), "nfs 0a000001 5ed5fcfa:0");
        assert_eq!(nfs("0:53", "server.site.org:/export/home/me"), nfs("0:52", "server:/export/home"));
        assert_ne!(nfs("0:54", "server:/export/scratch"), nfs("0:52", "server:/export/home"));
        // Where the kernel does not tell the number of the file system, or cuts it off, the directory stands for it.
        assert_eq!(nfs("0:55", "server:/export/home"), "nfs 10.0.0.1:/export/home");
        assert_eq!(nfs("0:9", "server:/export/home"), "nfs 10.0.0.1:/export/home");
        assert_ne!(nfs("0:9", "server:/export/home/me"), nfs("0:9", "server:/export/home"));
        let address = "vers=3,addr=10.0.0.1";
        assert!(is_one("nfs", ("fs:/home", address), ("fs.site.org:/home", address)));
        assert!(!is_one("nfs", ("fs:/home", address), ("fs:/home", "vers=3,addr=10.0.0.2")));
        assert!(is_one("nfs", ("FS.site.org.:/home", ""), ("fs.site.org:/home", "")));
        assert!(!is_one("nfs", ("fs.a.org:/home", ""), ("fs.b.org:/home", "")), "no domain is cut off");
    }

    #[test]
    fn servers_in_another_order_and_mounted_directories_make_no_other_storage() {
        let (pair, other) = ("10.0.0.1@tcp:10.0.0.2@tcp:/work", "10.0.0.2@tcp:10.0.0.1@tcp:/work/me");
        assert!(is_one("lustre", (pair, ""), (other, "")));
        assert!(is_one("lustre", ("a@tcp,a@o2ib:/work", ""), ("a@o2ib,a@tcp:/work", "")));
        assert!(!is_one("lustre", (pair, ""), ("10.0.0.1@tcp:10.0.0.2@tcp:/home", "")));
        assert!(!is_one("lustre", (pair, ""), ("10.0.0.1@tcp:/work", "")), "it may be another's");
        assert!(is_one(
            "ceph",
            ("10.0.0.1:6789,10.0.0.2:6789:/", ""),
            ("10.0.0.2:6789,10.0.0.1:6789:/me", "")
        ));
        assert!(is_one("ceph", ("a@12-34.fs=/", ""), ("b@12-34.fs=/me", "mon_addr=10.0.0.1:6789")));
        let monitors = "mon_addr=10.0.0.2:6789/10.0.0.1:6789";
        assert!(is_one("ceph", ("a@.fs=/", monitors), ("10.0.0.1:6789,10.0.0.2:6789:/", "")));
        assert!(!is_one("ceph", ("a@12-34.fs=/", ""), ("a@12-35.fs=/", "")));
        assert!(is_one("fuse.glusterfs", ("Host:/vol", ""), ("host:/vol/me", "")));
        assert!(!is_one("fuse.glusterfs", ("host:/vol", ""), ("host:/volume", "")));
        assert!(is_one("cifs", ("//NAS/Data", "addr=10.0.0.1"), ("//nas.site.org/data/me", "addr=10.0.0.1")));
        assert!(!is_one("cifs", ("//nas/data", "addr=10.0.0.1"), ("//nas/home", "addr=10.0.0.1")));
        assert!(is_one("gpfs", ("gpfs0", ""), ("gpfs0", "")));
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
