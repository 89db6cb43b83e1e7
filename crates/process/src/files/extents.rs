//! Where a sparse file has data, and where it has holes: lseek(2), `SEEK_DATA` and `SEEK_HOLE`; writing to places in
//! it.

use rustix::fd::AsFd;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::ops::Range;

/// The first run of data in `range`, which is not empty; `None` when it is all hole. The offset of the descriptor
/// moves, so it must be one of our own. Where the file system cannot tell, everything is data.
///
/// # Errors
/// The system's.
pub(crate) fn next_data(file: impl AsFd, range: Range<u64>) -> Result<Option<Range<u64>>, Errno> {
    let start = match rustix::fs::seek(&file, SeekFrom::Data(range.start)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(range)),
        Err(error) => return Err(error),
    };
    if start >= range.end {
        return Ok(None);
    }
    let end = rustix::fs::seek(&file, SeekFrom::Hole(start))?;
    Ok(Some(start.max(range.start)..end.min(range.end)))
}

/// Writes all bytes, from `at` on.
///
/// # Errors
/// The system's.
pub(crate) fn write_all_at(file: impl AsFd, mut at: u64, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(&file, bytes, at) {
            Ok(written) => {
                bytes = &bytes[written..];
                at += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes zeros, for file systems without holes.
///
/// # Errors
/// The system's.
pub(crate) fn write_zeros(file: impl AsFd, range: Range<u64>) -> Result<(), Errno> {
    let zeros = vec![0; (range.end - range.start).min(1 << 20) as usize];
    let mut starts = range.clone().step_by(zeros.len().max(1));
    starts.try_for_each(|at| {
        let length = (range.end - at).min(zeros.len() as u64) as usize;
        write_all_at(&file, at, &zeros[..length])
    })
}
