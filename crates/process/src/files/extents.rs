//! Where a sparse file has data, and where it has holes: lseek(2), `SEEK_DATA` and `SEEK_HOLE`.

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
