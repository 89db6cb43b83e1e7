//! Berkeley DB with transactions: B+ trees in files, a write-ahead log that each commit flushes, locks on pages.
//!
//! Opened with a cache for all that the benchmarks put in, in this process, and its defaults otherwise. The library's
//! interface is structs of functions whose places hang on how it was built; Debian's exports the functions themselves,
//! and those are called.

use super::library::c_library;
use super::store::Store;
use crate::engine::{Result, StoreOptions};
use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr::{null, null_mut};
use std::sync::{Mutex, PoisonError};

type Handle = *mut c_void;

/// `DBT`.
#[repr(C)]
struct Bytes {
    data: *mut c_void,
    size: c_uint,
    room: c_uint,
    part_bytes: c_uint,
    part_at: c_uint,
    of_caller: *mut c_void,
    flags: c_uint,
}

impl Bytes {
    /// Bytes that are only read.
    fn of(bytes: &[u8]) -> Bytes {
        Bytes {
            data: bytes.as_ptr().cast_mut().cast(),
            size: bytes.len() as c_uint,
            room: 0,
            part_bytes: 0,
            part_at: 0,
            of_caller: null_mut(),
            flags: 0,
        }
    }

    /// Room for bytes.
    fn room(room: &mut [u8]) -> Bytes {
        Bytes {
            data: room.as_mut_ptr().cast(),
            size: 0,
            room: room.len() as c_uint,
            flags: USER_MEMORY,
            ..Bytes::of(&[])
        }
    }
}

c_library!(Library, ["libdb-5.3.so"], "libdb5.3", {
    db_env_create: unsafe extern "C" fn(*mut Handle, c_uint) -> c_int,
    __env_open_pp: unsafe extern "C" fn(Handle, *const c_char, c_uint, c_int) -> c_int,
    __env_close_pp: unsafe extern "C" fn(Handle, c_uint) -> c_int,
    __memp_set_cachesize: unsafe extern "C" fn(Handle, c_uint, c_uint, c_int) -> c_int,
    __lock_set_lk_detect: unsafe extern "C" fn(Handle, c_uint) -> c_int,
    db_create: unsafe extern "C" fn(*mut Handle, Handle, c_uint) -> c_int,
    __db_open_pp: unsafe extern "C" fn(Handle, Handle, *const c_char, *const c_char, c_int, c_uint, c_int) -> c_int,
    __db_close_pp: unsafe extern "C" fn(Handle, c_uint) -> c_int,
    __db_get_pp: unsafe extern "C" fn(Handle, Handle, *mut Bytes, *mut Bytes, c_uint) -> c_int,
    __db_put_pp: unsafe extern "C" fn(Handle, Handle, *mut Bytes, *mut Bytes, c_uint) -> c_int,
    __db_del_pp: unsafe extern "C" fn(Handle, Handle, *mut Bytes, c_uint) -> c_int,
    __txn_begin_pp: unsafe extern "C" fn(Handle, Handle, *mut Handle, c_uint) -> c_int,
    __txn_commit: unsafe extern "C" fn(Handle, c_uint) -> c_int,
    __txn_abort: unsafe extern "C" fn(Handle) -> c_int,
    db_strerror: unsafe extern "C" fn(c_int) -> *const c_char,
});

// Of `db.h` 5.3.
const CREATE: c_uint = 0x1;
const RECOVER: c_uint = 0x2;
const THREAD: c_uint = 0x20;
const LOCKS_LOG_CACHE_TRANSACTIONS: c_uint = 0x100 | 0x200 | 0x400 | 0x2000;
const PRIVATE: c_uint = 0x1_0000;
const AUTO_COMMIT: c_uint = 0x100;
const DETECT_DEADLOCKS: c_uint = 1;
/// What is read is going to be written.
const READ_TO_WRITE: c_uint = 0x2000;
const USER_MEMORY: c_uint = 0x800;
const BTREE: c_int = 1;
const NOT_FOUND: c_int = -30988;
const DEADLOCK: c_int = -30993;
/// Bytes of its cache: with the default, 256 KiB, it would read its pages from the system again and again.
const CACHE: c_uint = 256 << 20;
/// The longest value that is read.
const ROOM: usize = 4096;

impl Library {
    fn done(&self, what: &str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the library gives a string that ends, for any code.
        let why = unsafe { CStr::from_ptr((self.db_strerror)(code)) };
        Err(format!("berkeley-db: {what}: {}", why.to_string_lossy()))
    }
}

pub(crate) struct BerkeleyDb {
    library: Library,
    environment: Handle,
    tables: Mutex<HashMap<u32, Handle>>,
}

// SAFETY: environment and tables are opened for all threads; each transaction stays with the thread that began it.
unsafe impl Sync for BerkeleyDb {}

pub(crate) struct Tx<'t> {
    store: &'t BerkeleyDb,
    handle: Handle,
    /// Another transaction goes first: this one is begun again.
    is_victim: Cell<bool>,
}

impl Tx<'_> {
    fn table(&self, table: u32) -> Handle {
        let tables = self.store.tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables.get(&table).copied().unwrap_or(null_mut())
    }

    fn done(&self, what: &str, code: c_int) -> Result<()> {
        self.is_victim.set(self.is_victim.get() || code == DEADLOCK);
        self.store.library.done(what, code)
    }
}

impl Store for BerkeleyDb {
    type Tx<'t> = Tx<'t>;

    fn open(place: &StoreOptions) -> Result<Self> {
        let library = Library::load()?;
        let path = CString::new(place.directory.as_os_str().as_bytes())
            .map_err(|_| "a path with a zero byte".to_owned())?;
        let mut environment = null_mut();
        let flags = CREATE | RECOVER | THREAD | PRIVATE | LOCKS_LOG_CACHE_TRANSACTIONS;
        // SAFETY: created, set up, then opened, as the library asks.
        unsafe {
            library.done("create", (library.db_env_create)(&raw mut environment, 0))?;
            let detect = (library.__lock_set_lk_detect)(environment, DETECT_DEADLOCKS);
            library.done("deadlocks", detect)?;
            let cache = (library.__memp_set_cachesize)(environment, 0, CACHE, 1);
            library.done("the cache", cache)?;
            library.done(
                "open",
                (library.__env_open_pp)(environment, path.as_ptr(), flags, 0o600),
            )?;
        }
        Ok(BerkeleyDb {
            library,
            environment,
            tables: Mutex::default(),
        })
    }

    fn table(&self, table: u32) -> Result<()> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if tables.contains_key(&table) {
            return Ok(());
        }
        let name = CString::new(format!("table-{table}.db")).expect("no zero byte");
        let (library, mut handle) = (&self.library, null_mut());
        let flags = CREATE | THREAD | AUTO_COMMIT;
        // SAFETY: the environment is open, the name ends; the handle is closed with the store.
        unsafe {
            library.done(
                "a table",
                (library.db_create)(&raw mut handle, self.environment, 0),
            )?;
            let opened =
                (library.__db_open_pp)(handle, null_mut(), name.as_ptr(), null(), BTREE, flags, 0o600);
            library.done("open a table", opened)?;
        }
        tables.insert(table, handle);
        Ok(())
    }

    fn group(&self, work: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        loop {
            let mut handle = null_mut();
            let library = &self.library;
            // SAFETY: the environment is open; the transaction ends below, on this thread.
            let begun = unsafe { (library.__txn_begin_pp)(self.environment, null_mut(), &raw mut handle, 0) };
            library.done("begin a transaction", begun)?;
            let mut tx = Tx {
                store: self,
                handle,
                is_victim: Cell::new(false),
            };
            match work(&mut tx) {
                // SAFETY: the transaction is live and not used again.
                Ok(()) => return library.done("commit", unsafe { (library.__txn_commit)(handle, 0) }),
                Err(error) => {
                    // SAFETY: as above.
                    library.done("abort", unsafe { (library.__txn_abort)(handle) })?;
                    if !tx.is_victim.get() {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn get<R>(tx: &Tx<'_>, table: u32, key: u64, look: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        let (key, mut room) = (key.to_be_bytes(), [0; ROOM]);
        let (mut key, mut value) = (Bytes::of(&key), Bytes::room(&mut room));
        let library = &tx.store.library;
        // SAFETY: the transaction is live, the table open; the value is copied into the room.
        let code = unsafe {
            (library.__db_get_pp)(
                tx.table(table),
                tx.handle,
                &raw mut key,
                &raw mut value,
                READ_TO_WRITE,
            )
        };
        if code == NOT_FOUND {
            return Ok(None);
        }
        tx.done("get", code)?;
        let bytes = value.size as usize;
        Ok(Some(look(&room[..bytes])))
    }

    fn put(tx: &mut Tx<'_>, table: u32, key: u64, value: &[u8]) -> Result<()> {
        let key = key.to_be_bytes();
        let (mut key, mut value) = (Bytes::of(&key), Bytes::of(value));
        let library = &tx.store.library;
        // SAFETY: the transaction is live, the table open; the library copies both.
        let code =
            unsafe { (library.__db_put_pp)(tx.table(table), tx.handle, &raw mut key, &raw mut value, 0) };
        tx.done("put", code)
    }

    fn remove(tx: &mut Tx<'_>, table: u32, key: u64) -> Result<bool> {
        let key = key.to_be_bytes();
        let mut key = Bytes::of(&key);
        let library = &tx.store.library;
        // SAFETY: the transaction is live, the table open.
        let code = unsafe { (library.__db_del_pp)(tx.table(table), tx.handle, &raw mut key, 0) };
        if code == NOT_FOUND {
            return Ok(false);
        }
        tx.done("delete", code)?;
        Ok(true)
    }
}

impl Drop for BerkeleyDb {
    fn drop(&mut self) {
        let tables = self.tables.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: no transaction outlives the borrow it was begun with; tables are closed before their environment.
        unsafe {
            for &table in tables.values() {
                (self.library.__db_close_pp)(table, 0);
            }
            (self.library.__env_close_pp)(self.environment, 0);
        }
    }
}
