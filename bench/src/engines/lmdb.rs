//! LMDB: a copy-on-write B+ tree in a memory map; commits write every page that changed, and sync.
//!
//! Opened with its defaults. A group is one transaction. The map's size has to be given up front.

use super::library::c_library;
use super::store::Store;
use crate::engine::{Result, StoreOptions, TABLES};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// `MDB_val`.
#[repr(C)]
struct Value {
    bytes: usize,
    data: *const c_void,
}

impl Value {
    fn of(bytes: &[u8]) -> Value {
        Value {
            bytes: bytes.len(),
            data: bytes.as_ptr().cast(),
        }
    }
}

type Handle = *mut c_void;

c_library!(Library, ["liblmdb.so.0"], "liblmdb0", {
    mdb_env_create: unsafe extern "C" fn(*mut Handle) -> c_int,
    mdb_env_set_mapsize: unsafe extern "C" fn(Handle, usize) -> c_int,
    mdb_env_set_maxdbs: unsafe extern "C" fn(Handle, c_uint) -> c_int,
    mdb_env_open: unsafe extern "C" fn(Handle, *const c_char, c_uint, c_uint) -> c_int,
    mdb_env_close: unsafe extern "C" fn(Handle),
    mdb_txn_begin: unsafe extern "C" fn(Handle, Handle, c_uint, *mut Handle) -> c_int,
    mdb_txn_commit: unsafe extern "C" fn(Handle) -> c_int,
    mdb_txn_abort: unsafe extern "C" fn(Handle),
    mdb_dbi_open: unsafe extern "C" fn(Handle, *const c_char, c_uint, *mut c_uint) -> c_int,
    mdb_get: unsafe extern "C" fn(Handle, c_uint, *mut Value, *mut Value) -> c_int,
    mdb_put: unsafe extern "C" fn(Handle, c_uint, *mut Value, *mut Value, c_uint) -> c_int,
    mdb_del: unsafe extern "C" fn(Handle, c_uint, *mut Value, *mut Value) -> c_int,
    mdb_strerror: unsafe extern "C" fn(c_int) -> *const c_char,
});

const INTEGER_KEY: c_uint = 0x08;
const CREATE: c_uint = 0x4_0000;
const NOT_FOUND: c_int = -30798;
/// Room in the address space, not on the medium.
const MAP_BYTES: usize = 32 << 30;
const THREADS: u32 = 16;

impl Library {
    fn done(&self, what: &str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the library gives a string that ends, for any code.
        let why = unsafe { CStr::from_ptr((self.mdb_strerror)(code)) };
        Err(format!("lmdb: {what}: {}", why.to_string_lossy()))
    }
}

pub(crate) struct Lmdb {
    library: Library,
    environment: Handle,
    /// LMDB's handle of each table.
    tables: Vec<AtomicU32>,
}

// SAFETY: an environment may be used by all threads; each transaction stays with the thread that began it.
unsafe impl Sync for Lmdb {}

pub(crate) struct Tx<'t> {
    lmdb: &'t Lmdb,
    handle: Handle,
}

impl Lmdb {
    fn begin(&self) -> Result<Tx<'_>> {
        let mut handle = null_mut();
        // SAFETY: the environment is open; the transaction ends in `commit` or `abort`, on this thread.
        let code = unsafe { (self.library.mdb_txn_begin)(self.environment, null_mut(), 0, &raw mut handle) };
        self.library.done("begin a transaction", code)?;
        Ok(Tx { lmdb: self, handle })
    }
}

impl Tx<'_> {
    fn finish(self, outcome: Result<()>) -> Result<()> {
        let library = &self.lmdb.library;
        if outcome.is_err() {
            // SAFETY: the transaction is live and not used again.
            unsafe { (library.mdb_txn_abort)(self.handle) };
            return outcome;
        }
        // SAFETY: as above.
        let code = unsafe { (library.mdb_txn_commit)(self.handle) };
        library.done("commit", code)
    }

    fn table(&self, table: u32) -> c_uint {
        self.lmdb.tables[table as usize].load(Relaxed)
    }
}

impl Store for Lmdb {
    type Tx<'t> = Tx<'t>;

    fn open(place: &StoreOptions) -> Result<Self> {
        let library = Library::load()?;
        let path = CString::new(place.directory.as_os_str().as_bytes())
            .map_err(|_| "a path with a zero byte".to_owned())?;
        let mut environment = null_mut();
        // SAFETY: as `mdb_env_create` and its neighbours ask: created, set up, then opened.
        unsafe {
            library.done("create", (library.mdb_env_create)(&raw mut environment))?;
            library.done("size", (library.mdb_env_set_mapsize)(environment, MAP_BYTES))?;
            library.done(
                "tables",
                (library.mdb_env_set_maxdbs)(environment, TABLES * THREADS),
            )?;
            library.done(
                "open",
                (library.mdb_env_open)(environment, path.as_ptr(), 0, 0o600),
            )?;
        }
        Ok(Lmdb {
            library,
            environment,
            tables: (0..TABLES * THREADS).map(|_| AtomicU32::new(0)).collect(),
        })
    }

    fn table(&self, table: u32) -> Result<()> {
        let tx = self.begin()?;
        let name = CString::new(format!("table {table}")).expect("no zero byte");
        let mut handle = 0;
        let flags = CREATE | INTEGER_KEY;
        // SAFETY: the transaction is live, the name ends.
        let code = unsafe { (self.library.mdb_dbi_open)(tx.handle, name.as_ptr(), flags, &raw mut handle) };
        tx.finish(self.library.done("open a table", code))?;
        self.tables[table as usize].store(handle, Relaxed);
        Ok(())
    }

    fn group(&self, work: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let mut tx = self.begin()?;
        let outcome = work(&mut tx);
        tx.finish(outcome)
    }

    fn get<R>(tx: &Tx<'_>, table: u32, key: u64, look: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        let key = key.to_ne_bytes();
        let (mut key, mut value) = (
            Value::of(&key),
            Value {
                bytes: 0,
                data: null(),
            },
        );
        let library = &tx.lmdb.library;
        // SAFETY: the transaction is live; what is found stays where it is until the next write.
        let code = unsafe { (library.mdb_get)(tx.handle, tx.table(table), &raw mut key, &raw mut value) };
        if code == NOT_FOUND {
            return Ok(None);
        }
        library.done("get", code)?;
        // SAFETY: as above: `look` ends before anything is written.
        let bytes = unsafe { std::slice::from_raw_parts(value.data.cast(), value.bytes) };
        Ok(Some(look(bytes)))
    }

    fn put(tx: &mut Tx<'_>, table: u32, key: u64, value: &[u8]) -> Result<()> {
        let key = key.to_ne_bytes();
        let (mut key, mut value) = (Value::of(&key), Value::of(value));
        let library = &tx.lmdb.library;
        // SAFETY: the transaction is live; LMDB copies both.
        let code = unsafe { (library.mdb_put)(tx.handle, tx.table(table), &raw mut key, &raw mut value, 0) };
        library.done("put", code)
    }

    fn remove(tx: &mut Tx<'_>, table: u32, key: u64) -> Result<bool> {
        let key = key.to_ne_bytes();
        let mut key = Value::of(&key);
        let library = &tx.lmdb.library;
        // SAFETY: the transaction is live; no data is asked for.
        let code = unsafe { (library.mdb_del)(tx.handle, tx.table(table), &raw mut key, null_mut()) };
        if code == NOT_FOUND {
            return Ok(false);
        }
        library.done("delete", code)?;
        Ok(true)
    }
}

impl Drop for Lmdb {
    fn drop(&mut self) {
        // SAFETY: no transaction outlives the borrow it was begun with.
        unsafe { (self.library.mdb_env_close)(self.environment) };
    }
}
