//! What went wrong in I/O calls: which call, on which file, with which error.

use crate::layout::Abi;
use crate::profile::{Failure, OTHER_FILES};
use crate::record::Record;
use crate::totals::seconds;
use std::collections::{BTreeMap, HashMap};

/// Failures in the profile's list. Those of a rank are bounded by its record, those of all ranks by this.
const LISTED: usize = 64;

/// In a failure's code: the number is the class of an MPI error, and not an `errno`.
pub const IS_MPI: u64 = 1 << 32;
/// In a failure's code: a program that asks this way reckons with the answer.
pub const IS_HARMLESS: u64 = 1 << 33;

/// The class of MPI errors that says that a file is not there.
pub const NO_SUCH_FILE: &str = "MPI_ERR_NO_SUCH_FILE";
/// The class of MPI errors that says that a file is there already.
pub const FILE_EXISTS: &str = "MPI_ERR_FILE_EXISTS";

/// Classes of MPI errors: the name, and the number in MPICH's, Open MPI's and the standard ABI.
const CLASSES: &[(&str, [u32; 3])] = &[
    ("MPI_ERR_COUNT", [2, 2, 2]),
    ("MPI_ERR_TYPE", [3, 3, 3]),
    ("MPI_ERR_ARG", [12, 13, 13]),
    ("MPI_ERR_UNKNOWN", [13, 14, 14]),
    ("MPI_ERR_OTHER", [15, 16, 16]),
    ("MPI_ERR_INTERN", [16, 17, 17]),
    ("MPI_ERR_ACCESS", [20, 20, 20]),
    ("MPI_ERR_AMODE", [21, 21, 21]),
    ("MPI_ERR_BAD_FILE", [22, 23, 23]),
    ("MPI_ERR_CONVERSION", [23, 25, 25]),
    ("MPI_ERR_DUP_DATAREP", [24, 27, 27]),
    (FILE_EXISTS, [25, 28, 28]),
    ("MPI_ERR_FILE_IN_USE", [26, 29, 29]),
    ("MPI_ERR_FILE", [27, 30, 30]),
    ("MPI_ERR_INFO", [28, 34, 34]),
    ("MPI_ERR_IO", [32, 35, 35]),
    ("MPI_ERR_NO_MEM", [34, 39, 39]),
    ("MPI_ERR_NOT_SAME", [35, 40, 40]),
    ("MPI_ERR_NO_SPACE", [36, 41, 41]),
    (NO_SUCH_FILE, [37, 42, 42]),
    ("MPI_ERR_QUOTA", [39, 44, 44]),
    ("MPI_ERR_READ_ONLY", [40, 45, 45]),
    ("MPI_ERR_UNSUPPORTED_DATAREP", [43, 51, 54]),
    ("MPI_ERR_UNSUPPORTED_OPERATION", [44, 52, 55]),
    ("MPI_ERR_DISP", [52, 26, 26]),
];

/// The name of a class of MPI errors, if it is one that files have to do with.
pub fn class_name(abi: Abi, class: u32) -> Option<&'static str> {
    let column = match abi {
        Abi::Unknown => return None,
        Abi::Mpich => 0,
        Abi::OpenMpi => 1,
        Abi::Standard => 2,
    };
    CLASSES.iter().find(|(_, numbers)| numbers[column] == class).map(|(name, _)| *name)
}

/// Names of the errors that file systems return.
const ERRNOS: &[(i32, &str)] = &[
    (libc::EPERM, "EPERM"),
    (libc::ENOENT, "ENOENT"),
    (libc::EINTR, "EINTR"),
    (libc::EIO, "EIO"),
    (libc::ENXIO, "ENXIO"),
    (libc::EBADF, "EBADF"),
    (libc::EAGAIN, "EAGAIN"),
    (libc::ENOMEM, "ENOMEM"),
    (libc::EACCES, "EACCES"),
    (libc::EFAULT, "EFAULT"),
    (libc::EBUSY, "EBUSY"),
    (libc::EEXIST, "EEXIST"),
    (libc::ENODEV, "ENODEV"),
    (libc::ENOTDIR, "ENOTDIR"),
    (libc::EISDIR, "EISDIR"),
    (libc::EINVAL, "EINVAL"),
    (libc::ENFILE, "ENFILE"),
    (libc::EMFILE, "EMFILE"),
    (libc::ETXTBSY, "ETXTBSY"),
    (libc::EFBIG, "EFBIG"),
    (libc::ENOSPC, "ENOSPC"),
    (libc::ESPIPE, "ESPIPE"),
    (libc::EROFS, "EROFS"),
    (libc::ENAMETOOLONG, "ENAMETOOLONG"),
    (libc::ENOSYS, "ENOSYS"),
    (libc::ELOOP, "ELOOP"),
    (libc::EOVERFLOW, "EOVERFLOW"),
    (libc::EOPNOTSUPP, "EOPNOTSUPP"),
    (libc::ETIMEDOUT, "ETIMEDOUT"),
    (libc::ECONNREFUSED, "ECONNREFUSED"),
    (libc::EHOSTDOWN, "EHOSTDOWN"),
    (libc::ESTALE, "ESTALE"),
    (libc::EREMOTEIO, "EREMOTEIO"),
    (libc::EDQUOT, "EDQUOT"),
];

/// What makes two failures the same.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    op: String,
    file: String,
    error: String,
}

struct Sum {
    errno: Option<i32>,
    harmless: bool,
    count: u64,
    nranks: u64,
    last_rank: Option<u64>,
    /// Of the first of them.
    rank: u64,
    start_ns: u64,
}

/// Failures of all ranks so far, bounded; what finds no place is in the counters of errors alone.
#[derive(Default)]
pub(crate) struct Failures(BTreeMap<Kind, Sum>);

impl Failures {
    /// Ranks come in order.
    pub(crate) fn add(&mut self, record: &Record, names: &HashMap<u64, String>) {
        let rank = record.head.rank;
        for failure in record.failures() {
            let number = failure.code as u32;
            let errno = (failure.code & IS_MPI == 0).then_some(number as i32);
            let error = match errno {
                Some(errno) => errno_name(errno),
                None => class_name(record.head.abi, number)
                    .map_or_else(|| format!("MPI error class {number}"), String::from),
            };
            let file = names.get(&failure.file).map_or(OTHER_FILES, String::as_str).to_string();
            let kind = Kind { op: failure.op, file, error };
            if self.0.len() >= LISTED && !self.0.contains_key(&kind) {
                continue;
            }
            let sum = self.0.entry(kind).or_insert(Sum {
                errno,
                harmless: true,
                count: 0,
                nranks: 0,
                last_rank: None,
                rank,
                start_ns: failure.start_ns,
            });
            sum.harmless &= failure.code & IS_HARMLESS != 0;
            sum.count = sum.count.saturating_add(failure.count);
            sum.nranks += u64::from(sum.last_rank.replace(rank) != Some(rank));
            if failure.start_ns < sum.start_ns {
                (sum.rank, sum.start_ns) = (rank, failure.start_ns);
            }
        }
    }

    /// Those that matter first, then by number.
    pub(crate) fn finish(self, job_start_ns: u64) -> Vec<Failure> {
        let failure = |(kind, sum): (Kind, Sum)| Failure {
            op: kind.op,
            file: kind.file,
            error: kind.error,
            errno: sum.errno,
            harmless: sum.harmless,
            count: sum.count,
            nranks: sum.nranks,
            rank: sum.rank,
            start_s: seconds(sum.start_ns.saturating_sub(job_start_ns)),
        };
        let mut list: Vec<Failure> = self.0.into_iter().map(failure).collect();
        list.sort_by_key(|failure| (failure.harmless, std::cmp::Reverse(failure.count)));
        list
    }
}

/// `ENOSPC`; the number where no name is known.
fn errno_name(errno: i32) -> String {
    let known = ERRNOS.iter().find(|(number, _)| *number == errno);
    known.map_or_else(|| format!("errno {errno}"), |(_, name)| (*name).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_named_in_every_abi() {
        assert_eq!(class_name(Abi::Mpich, 37), Some(NO_SUCH_FILE));
        assert_eq!(class_name(Abi::OpenMpi, 42), Some(NO_SUCH_FILE));
        assert_eq!(class_name(Abi::Standard, 55), Some("MPI_ERR_UNSUPPORTED_OPERATION"));
        assert_eq!(class_name(Abi::Unknown, 37), None);
        assert_eq!([errno_name(libc::ENOSPC), errno_name(4711)], ["ENOSPC", "errno 4711"]);
    }

    #[test]
    fn every_number_has_one_name() {
        for column in 0..3 {
            let mut numbers: Vec<u32> = CLASSES.iter().map(|(_, numbers)| numbers[column]).collect();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), CLASSES.len());
        }
    }
}
