//! RocksDB: a log-structured merge tree with a write-ahead log.
//!
//! A group is what is written between two syncs of the log (`manual_wal_flush`, then `FlushWAL(sync)`): the
//! same loss as the others, and less work than a batch, because it promises no atomic group. Reads see what
//! was written at once. Background jobs as RocksDB starts them; a 256 MiB block cache.

use super::library::c_library;
use super::store::Store;
use crate::engine::{Result, StoreOptions};
use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null_mut;

type Handle = *mut c_void;
type Message = *mut c_char;

c_library!(Library, ["librocksdb.so.7.8", "librocksdb.so"], "librocksdb7.8", {
    rocksdb_options_create: unsafe extern "C" fn() -> Handle,
    rocksdb_options_set_create_if_missing: unsafe extern "C" fn(Handle, c_uchar),
    rocksdb_options_set_manual_wal_flush: unsafe extern "C" fn(Handle, c_uchar),
    rocksdb_options_optimize_for_point_lookup: unsafe extern "C" fn(Handle, u64),
    rocksdb_open: unsafe extern "C" fn(Handle, *const c_char, *mut Message) -> Handle,
    rocksdb_close: unsafe extern "C" fn(Handle),
    rocksdb_readoptions_create: unsafe extern "C" fn() -> Handle,
    rocksdb_writeoptions_create: unsafe extern "C" fn() -> Handle,
    rocksdb_writeoptions_disable_WAL: unsafe extern "C" fn(Handle, c_int),
    rocksdb_flushoptions_create: unsafe extern "C" fn() -> Handle,
    rocksdb_flush: unsafe extern "C" fn(Handle, Handle, *mut Message),
    rocksdb_flush_wal: unsafe extern "C" fn(Handle, c_uchar, *mut Message),
    rocksdb_put: unsafe extern "C" fn(Handle, Handle, *const c_char, usize, *const c_char, usize, *mut Message),
    rocksdb_delete: unsafe extern "C" fn(Handle, Handle, *const c_char, usize, *mut Message),
    rocksdb_get_pinned: unsafe extern "C" fn(Handle, Handle, *const c_char, usize, *mut Message) -> Handle,
    rocksdb_pinnableslice_value: unsafe extern "C" fn(Handle, *mut usize) -> *const c_char,
    rocksdb_pinnableslice_destroy: unsafe extern "C" fn(Handle),
    rocksdb_free: unsafe extern "C" fn(*mut c_void),
});

const CACHE_MIB: u64 = 256;

pub(crate) struct RocksDb {
    library: Library,
    database: Handle,
    reads: Handle,
    writes: Handle,
    /// Without the log, to load.
    bulk: Handle,
    flush: Handle,
}

// SAFETY: a RocksDB database and its options may be used by all threads at once.
unsafe impl Sync for RocksDb {}

pub(crate) struct Tx<'t> {
    rocks: &'t RocksDb,
    writes: Handle,
}

/// The table and the key, in an order that is theirs.
fn composed(table: u32, key: u64) -> [u8; 10] {
    let mut bytes = [0; 10];
    bytes[..2].copy_from_slice(&(table as u16).to_be_bytes());
    bytes[2..].copy_from_slice(&key.to_be_bytes());
    bytes
}

impl Library {
    fn done(&self, what: &str, message: Message) -> Result<()> {
        if message.is_null() {
            return Ok(());
        }
        // SAFETY: RocksDB's messages end with a zero byte, and the receiver frees them.
        unsafe {
            let why = CStr::from_ptr(message).to_string_lossy().into_owned();
            (self.rocksdb_free)(message.cast());
            Err(format!("rocksdb: {what}: {why}"))
        }
    }
}

impl Store for RocksDb {
    type Tx<'t> = Tx<'t>;

    fn open(place: &StoreOptions) -> Result<Self> {
        let library = Library::load()?;
        let path = CString::new(place.directory.as_os_str().as_bytes())
            .map_err(|_| "a path with a zero byte".to_owned())?;
        let mut message = null_mut();
        // SAFETY: options are made, set and used as the C header shows; they live as long as the process.
        unsafe {
            let options = (library.rocksdb_options_create)();
            (library.rocksdb_options_set_create_if_missing)(options, 1);
            (library.rocksdb_options_set_manual_wal_flush)(options, 1);
            (library.rocksdb_options_optimize_for_point_lookup)(options, CACHE_MIB);
            let database = (library.rocksdb_open)(options, path.as_ptr(), &raw mut message);
            library.done("open", message)?;
            let bulk = (library.rocksdb_writeoptions_create)();
            (library.rocksdb_writeoptions_disable_WAL)(bulk, 1);
            Ok(RocksDb {
                database,
                reads: (library.rocksdb_readoptions_create)(),
                writes: (library.rocksdb_writeoptions_create)(),
                bulk,
                flush: (library.rocksdb_flushoptions_create)(),
                library,
            })
        }
    }

    fn table(&self, _: u32) -> Result<()> {
        Ok(())
    }

    fn group(&self, work: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let writes = self.writes;
        work(&mut Tx { rocks: self, writes })?;
        let mut message = null_mut();
        // SAFETY: the database is open.
        unsafe { (self.library.rocksdb_flush_wal)(self.database, 1, &raw mut message) };
        self.library.done("sync the log", message)
    }

    fn load(&self, work: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let writes = self.bulk;
        work(&mut Tx { rocks: self, writes })
    }

    fn get<R>(tx: &Tx<'_>, table: u32, key: u64, look: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        let Tx { rocks, .. } = tx;
        let (library, key) = (&rocks.library, composed(table, key));
        let mut message = null_mut();
        // SAFETY: the database is open; the slice is pinned until it is destroyed.
        unsafe {
            let slice = (library.rocksdb_get_pinned)(
                rocks.database,
                rocks.reads,
                key.as_ptr().cast(),
                key.len(),
                &raw mut message,
            );
            library.done("get", message)?;
            if slice.is_null() {
                return Ok(None);
            }
            let mut len = 0;
            let data: *const u8 = (library.rocksdb_pinnableslice_value)(slice, &raw mut len).cast();
            let seen = look(std::slice::from_raw_parts(data, len));
            (library.rocksdb_pinnableslice_destroy)(slice);
            Ok(Some(seen))
        }
    }

    fn put(tx: &mut Tx<'_>, table: u32, key: u64, value: &[u8]) -> Result<()> {
        let Tx { rocks, writes } = tx;
        let key = composed(table, key);
        let mut message = null_mut();
        // SAFETY: the database is open; it copies both.
        unsafe {
            (rocks.library.rocksdb_put)(
                rocks.database,
                *writes,
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
                &raw mut message,
            );
        }
        rocks.library.done("put", message)
    }

    fn remove(tx: &mut Tx<'_>, table: u32, key: u64) -> Result<bool> {
        if Self::get(tx, table, key, |_| ())?.is_none() {
            return Ok(false);
        }
        let Tx { rocks, writes } = tx;
        let key = composed(table, key);
        let mut message = null_mut();
        // SAFETY: the database is open; it copies the key.
        unsafe {
            (rocks.library.rocksdb_delete)(
                rocks.database,
                *writes,
                key.as_ptr().cast(),
                key.len(),
                &raw mut message,
            );
        }
        rocks.library.done("delete", message)?;
        Ok(true)
    }

    /// What was loaded without the log is flushed, then the database is closed.
    fn close(self) -> Result<()> {
        let mut message = null_mut();
        // SAFETY: the database is open.
        unsafe { (self.library.rocksdb_flush)(self.database, self.flush, &raw mut message) };
        self.library.done("flush", message)
    }
}

impl Drop for RocksDb {
    fn drop(&mut self) {
        // SAFETY: nothing is left that uses it.
        unsafe { (self.library.rocksdb_close)(self.database) };
    }
}
