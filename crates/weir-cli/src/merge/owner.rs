//! Doing something as the owner of a folder.
//!
//! What root does in a user's directory can be led astray by links that the user, or somebody else, puts there. A process that has
//! become the owner can do no more there than the owner could.

use std::ffi::CStr;
use std::fs::metadata;
use std::io::{Error, Result};
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use weir_profile::is_own_directory;

/// Groups of a user beyond these are left out.
const MAX_GROUPS: usize = 1024;

/// A user, and the group that the folder has.
#[derive(Clone, Copy)]
pub(super) struct Owner {
    user: libc::uid_t,
    group: libc::gid_t,
}

impl Owner {
    pub(super) fn of(folder: &Path) -> Result<Owner> {
        let found = metadata(folder)?;
        Ok(Owner { user: found.uid(), group: found.gid() })
    }

    pub(super) fn is_this_process(&self) -> bool {
        // SAFETY: asks for a number.
        self.user == unsafe { libc::geteuid() }
    }

    /// Does the work in a process that has become this user, and answers when it has ended: whether it went well, as the work says, or why
    /// it could not be begun.
    pub(super) fn do_as(
        &self,
        folder: &Path,
        work: impl FnOnce() -> bool,
    ) -> std::result::Result<bool, String> {
        let name = folder.display();
        // SAFETY: asks for a number.
        if unsafe { libc::geteuid() } != 0 {
            return Err(format!(
                "{name}: records of another user (uid {}); that user or root can merge them",
                self.user
            ));
        }
        // SAFETY: this program has no other thread here. The child does not return from this block.
        match unsafe { libc::fork() } {
            -1 => Err(format!("{name}: cannot start a process: {}", Error::last_os_error())),
            0 => {
                let work = || match self.assume() {
                    Ok(()) if is_own_directory(folder) => work(),
                    Ok(()) => refused(&format!("{name}: not a directory of user {}", self.user)),
                    Err(error) => refused(&format!("{name}: cannot become user {}: {error}", self.user)),
                };
                let is_done = catch_unwind(AssertUnwindSafe(work)).unwrap_or(false);
                // SAFETY: ends the process without what its parent would do at its end.
                unsafe { libc::_exit(i32::from(!is_done)) }
            }
            child => {
                let mut status = 0;
                // SAFETY: a child of ours, and a place for how it ended.
                while unsafe { libc::waitpid(child, &mut status, 0) } < 0 {
                    let error = Error::last_os_error();
                    if error.kind() != std::io::ErrorKind::Interrupted {
                        return Err(format!("{name}: {error}"));
                    }
                }
                Ok(status == 0)
            }
        }
    }

    /// Becomes this user for good: all identities and groups.
    fn assume(&self) -> Result<()> {
        let (group, groups) = self.groups();
        let checked = |answer: libc::c_int| if answer == 0 { Ok(()) } else { Err(Error::last_os_error()) };
        // SAFETY: a list and its length, and numbers.
        unsafe {
            checked(libc::setgroups(groups.len(), groups.as_ptr()))?;
            checked(libc::setresgid(group, group, group))?;
            checked(libc::setresuid(self.user, self.user, self.user))
        }
    }

    /// The group that new files get, which is the folder's if the user is in it, and all groups. Users that no database knows have the
    /// folder's alone.
    fn groups(&self) -> (libc::gid_t, Vec<libc::gid_t>) {
        // SAFETY: no other thread of this program asks the database; what comes back is read before it is asked again.
        unsafe {
            let entry = libc::getpwuid(self.user);
            if entry.is_null() {
                return (self.group, vec![self.group]);
            }
            let (name, primary) = (CStr::from_ptr((*entry).pw_name).to_owned(), (*entry).pw_gid);
            let mut groups: Vec<libc::gid_t> = vec![primary; MAX_GROUPS];
            let mut count = MAX_GROUPS as libc::c_int;
            if libc::getgrouplist(name.as_ptr(), primary, groups.as_mut_ptr(), &mut count) < 0 {
                count = MAX_GROUPS as libc::c_int;
            }
            groups.truncate(usize::try_from(count).unwrap_or(1));
            let group = if groups.contains(&self.group) { self.group } else { primary };
            (group, groups)
        }
    }
}

fn refused(reason: &str) -> bool {
    crate::output::say(reason);
    false
}
