//! Who may talk: peer credentials on Unix sockets, a shared key over TCP.
//!
//! Over TCP each side sends 32 random bytes and proves with HMAC-SHA256 that it has the key, over both sides'
//! bytes and its own role, so that a proof can be neither replayed nor turned around. What follows is not
//! encrypted: names and byte counts travel in the clear, and the network between nodes is trusted not to
//! alter them. Macs are compared in constant time.

use crate::wire::Message;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

pub type Nonce = [u8; 32];

/// A shared secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Vec<u8>);

/// Shorter secrets can be guessed.
const SHORTEST_KEY_BYTES: usize = 16;
const LONGEST_KEY_BYTES: usize = 4096;

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    /// Reads the key from a file that belongs to this user and that nobody else can read, or from one of root's,
    /// which may be readable for a group: those who may join at a site.
    pub fn read(path: &Path) -> Result<Key, String> {
        let failed = |error: io::Error| format!("key file {}: {error}", path.display());
        let mut file = File::open(path).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        let (forbidden, allowed) = match about.uid() {
            0 => (0o037, "root and a group may read it (640)"),
            _ => (0o077, "its owner may read it (600)"),
        };
        if about.mode() & forbidden != 0 {
            let mode = about.mode() & 0o7777;
            return Err(format!("key file {}: mode {mode:o}, but only {allowed}", path.display()));
        }
        if about.uid() != user() && about.uid() != 0 {
            return Err(format!("key file {}: belongs to another user", path.display()));
        }
        let mut bytes = Vec::new();
        Read::by_ref(&mut file).take(LONGEST_KEY_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
        let end = bytes.iter().rposition(|byte| !byte.is_ascii_whitespace()).map_or(0, |last| last + 1);
        bytes.truncate(end);
        if !(SHORTEST_KEY_BYTES..=LONGEST_KEY_BYTES).contains(&bytes.len()) {
            let wanted = format!("{SHORTEST_KEY_BYTES} to {LONGEST_KEY_BYTES} bytes");
            return Err(format!("key file {}: a key has {wanted}", path.display()));
        }
        Ok(Key(bytes))
    }

    pub fn random() -> io::Result<Key> {
        Ok(Key(hex(&nonce()?).into_bytes()))
    }

    pub fn from_text(text: &str) -> Key {
        Key(text.as_bytes().to_vec())
    }

    /// As it stands in a file. Only for keys made of text, as [`Key::random`] makes them.
    pub fn as_text(&self) -> Option<&str> {
        str::from_utf8(&self.0).ok()
    }

    /// The proof of the side that connects.
    pub fn client_mac(&self, server: &Nonce, client: &Nonce) -> [u8; 32] {
        self.mac(b"weir client", server, client).finalize().into_bytes().into()
    }

    pub fn is_client_mac(&self, server: &Nonce, client: &Nonce, mac: &[u8; 32]) -> bool {
        self.mac(b"weir client", server, client).verify_slice(mac).is_ok()
    }

    /// The proof of the coordinator.
    pub fn server_mac(&self, server: &Nonce, client: &Nonce) -> [u8; 32] {
        self.mac(b"weir server", server, client).finalize().into_bytes().into()
    }

    pub fn is_server_mac(&self, server: &Nonce, client: &Nonce, mac: &[u8; 32]) -> bool {
        self.mac(b"weir server", server, client).verify_slice(mac).is_ok()
    }

    fn mac(&self, role: &[u8], server: &Nonce, client: &Nonce) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(role);
        mac.update(server);
        mac.update(client);
        mac
    }
}

/// The proofs of the side that connects: it answers the coordinator's challenge, and checks the coordinator's answer.
#[derive(Clone, Debug)]
pub struct Handshake {
    key: Key,
    client: Nonce,
    server: Option<Nonce>,
}

impl Handshake {
    /// `client` are random bytes, used once.
    pub fn new(key: Key, client: Nonce) -> Handshake {
        Handshake { key, client, server: None }
    }

    /// The answer to a challenge.
    pub fn prove(&mut self, server: Nonce) -> Message {
        self.server = Some(server);
        Message::Proof { nonce: self.client, mac: self.key.client_mac(&server, &self.client) }
    }

    /// Whether the coordinator has the key as well.
    pub fn is_proven_by(&self, mac: &[u8; 32]) -> bool {
        self.server.is_some_and(|server| self.key.is_server_mac(&server, &self.client, mac))
    }
}

/// 32 bytes that nobody can foresee.
pub fn nonce() -> io::Result<Nonce> {
    let mut bytes = [0; 32];
    // SAFETY: the buffer is as long as said. Up to 256 bytes come whole or not at all.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got == bytes.len() as isize { Ok(bytes) } else { Err(io::Error::last_os_error()) }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The user that this process acts for.
pub fn user() -> u32 {
    // SAFETY: has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

/// The user at the other end of a Unix socket, as the kernel says.
pub fn peer_user(stream: &UnixStream) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: pointer and length describe `peer`, and the descriptor is open.
    let result = unsafe {
        let peer: *mut libc::ucred = &mut peer;
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, peer.cast(), &mut length)
    };
    if result == 0 { Ok(peer.uid) } else { Err(io::Error::last_os_error()) }
}

/// Makes the directory if it is not there, and checks that it is this user's alone.
pub fn private_directory(path: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("directory {}: {error}", path.display());
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    // A link of somebody else's could be turned to another place at any time.
    let about = fs::symlink_metadata(path).map_err(failed)?;
    if !about.is_dir() {
        return Err(format!("directory {}: is none", path.display()));
    }
    if about.uid() != user() {
        return Err(format!("directory {}: belongs to another user", path.display()));
    }
    if about.mode() & 0o077 != 0 {
        let mode = about.mode() & 0o7777;
        return Err(format!(
            "directory {}: mode {mode:o}, but only its owner may enter it (700)",
            path.display()
        ));
    }
    Ok(())
}

/// Writes a file that only this user can read, in one step: nobody sees half of it.
pub fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension(format!("{}.tmp", std::process::id()));
    let _ = fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn proofs_hold_for_one_key_one_role_and_one_pair_of_nonces() {
        let (key, other) = (Key::from_text("a secret of some length"), Key::from_text("another secret"));
        let (server, client) = ([1; 32], [2; 32]);
        let mac = key.client_mac(&server, &client);
        assert!(key.is_client_mac(&server, &client, &mac));
        assert!(!other.is_client_mac(&server, &client, &mac));
        assert!(!key.is_client_mac(&client, &server, &mac));
        assert!(!key.is_server_mac(&server, &client, &mac));
        assert!(key.is_server_mac(&server, &client, &key.server_mac(&server, &client)));
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let path = std::env::temp_dir().join(format!("weir-key-{}", std::process::id()));
        write_private(&path, "0123456789abcdef0123\n").unwrap();
        assert_eq!(Key::read(&path), Ok(Key::from_text("0123456789abcdef0123")));
        let read_as = |mode| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Key::read(&path)
        };
        assert!(read_as(0o644).unwrap_err().contains("mode 644"));
        assert!(read_as(0o660).unwrap_err().contains("mode 660"));
        // A site's: root's, and for a group to read.
        assert_eq!(read_as(0o640).is_ok(), user() == 0);
        write_private(&path, "short\n").unwrap();
        assert!(Key::read(&path).unwrap_err().contains("16 to 4096 bytes"));
        fs::remove_file(&path).unwrap();
        assert!(Key::read(&path).unwrap_err().starts_with("key file "));
    }

    #[test]
    fn a_directory_of_all_is_not_private() {
        let path = std::env::temp_dir().join(format!("weir-private-{}", std::process::id()));
        private_directory(&path).unwrap();
        private_directory(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(private_directory(&path).unwrap_err().contains("mode 755"));
        fs::remove_dir(&path).unwrap();
    }
}
