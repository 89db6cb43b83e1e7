//! SQLite: a B-tree with a write-ahead log.
//!
//! `journal_mode = WAL`, `synchronous = FULL`: a commit is durable when it returns. A group is one
//! transaction; a table has an integer primary key and a blob. Statements are prepared once.

use super::library::c_library;
use super::store::Store;
use crate::engine::{Result, StoreOptions};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

type Handle = *mut c_void;

c_library!(Library, ["libsqlite3.so.0"], "libsqlite3-0", {
    sqlite3_open: unsafe extern "C" fn(*const c_char, *mut Handle) -> c_int,
    sqlite3_close: unsafe extern "C" fn(Handle) -> c_int,
    sqlite3_exec: unsafe extern "C" fn(Handle, *const c_char, *const c_void, *const c_void, *mut *mut c_char) -> c_int,
    sqlite3_prepare_v2: unsafe extern "C" fn(Handle, *const c_char, c_int, *mut Handle, *mut *const c_char) -> c_int,
    sqlite3_bind_int64: unsafe extern "C" fn(Handle, c_int, i64) -> c_int,
    sqlite3_bind_blob: unsafe extern "C" fn(Handle, c_int, *const c_void, c_int, *const c_void) -> c_int,
    sqlite3_step: unsafe extern "C" fn(Handle) -> c_int,
    sqlite3_reset: unsafe extern "C" fn(Handle) -> c_int,
    sqlite3_finalize: unsafe extern "C" fn(Handle) -> c_int,
    sqlite3_column_blob: unsafe extern "C" fn(Handle, c_int) -> *const c_void,
    sqlite3_column_bytes: unsafe extern "C" fn(Handle, c_int) -> c_int,
    sqlite3_changes: unsafe extern "C" fn(Handle) -> c_int,
    sqlite3_errmsg: unsafe extern "C" fn(Handle) -> *const c_char,
});

const OK: c_int = 0;
const ROW: c_int = 100;
const DONE: c_int = 101;

/// The prepared statements of one table.
#[derive(Clone, Copy)]
struct Statements {
    get: Handle,
    put: Handle,
    remove: Handle,
}

/// What one thread at a time may use.
struct Connection {
    library: Library,
    database: Handle,
    statements: HashMap<u32, Statements>,
}

// SAFETY: SQLite is built to be used from several threads, one at a time: the mutex sees to that.
unsafe impl Send for Connection {}

pub(crate) struct Sqlite(Mutex<Connection>);

pub(crate) struct Tx<'t>(&'t Connection);

impl Connection {
    fn done(&self, what: &str, code: c_int) -> Result<()> {
        if matches!(code, OK | ROW | DONE) {
            return Ok(());
        }
        // SAFETY: the database is open; the message ends.
        let why = unsafe { CStr::from_ptr((self.library.sqlite3_errmsg)(self.database)) };
        Err(format!("sqlite: {what}: {} ({code})", why.to_string_lossy()))
    }

    fn execute(&self, sql: &CStr) -> Result<()> {
        // SAFETY: the database is open; no callback, no message is asked for.
        let code = unsafe {
            (self.library.sqlite3_exec)(self.database, sql.as_ptr(), null_mut(), null_mut(), null_mut())
        };
        self.done(&sql.to_string_lossy(), code)
    }

    fn prepare(&self, sql: &str) -> Result<Handle> {
        let text = CString::new(sql).expect("no zero byte");
        let mut statement = null_mut();
        // SAFETY: the database is open, the text ends.
        let code = unsafe {
            (self.library.sqlite3_prepare_v2)(
                self.database,
                text.as_ptr(),
                -1,
                &raw mut statement,
                null_mut(),
            )
        };
        self.done(sql, code)?;
        Ok(statement)
    }

    fn table(&mut self, table: u32) -> Result<()> {
        let make = format!("CREATE TABLE IF NOT EXISTS t{table} (k INTEGER PRIMARY KEY, v BLOB NOT NULL)");
        self.execute(&CString::new(make).expect("no zero byte"))?;
        let statements = Statements {
            get: self.prepare(&format!("SELECT v FROM t{table} WHERE k = ?"))?,
            put: self.prepare(&format!("INSERT OR REPLACE INTO t{table} VALUES (?, ?)"))?,
            remove: self.prepare(&format!("DELETE FROM t{table} WHERE k = ?"))?,
        };
        self.statements.insert(table, statements);
        Ok(())
    }

    fn transaction(&self, work: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        self.execute(c"BEGIN IMMEDIATE")?;
        let outcome = work(&mut Tx(self));
        match outcome {
            Ok(()) => self.execute(c"COMMIT"),
            Err(why) => {
                self.execute(c"ROLLBACK")?;
                Err(why)
            }
        }
    }
}

impl Tx<'_> {
    /// Runs a statement whose first parameter is `key`, and looks at it before it is reset.
    fn step<R>(&self, statement: Handle, key: u64, look: impl FnOnce(c_int) -> R) -> Result<R> {
        let Connection { library, .. } = self.0;
        // SAFETY: the statement belongs to this open connection, which no other thread uses now.
        unsafe {
            self.0
                .done("bind", (library.sqlite3_bind_int64)(statement, 1, key as i64))?;
            let code = (library.sqlite3_step)(statement);
            let seen = look(code);
            let reset = (library.sqlite3_reset)(statement);
            self.0.done("step", code)?;
            self.0.done("reset", reset)?;
            Ok(seen)
        }
    }
}

impl Store for Sqlite {
    type Tx<'t> = Tx<'t>;

    fn open(place: &StoreOptions) -> Result<Self> {
        let library = Library::load()?;
        let path = CString::new(place.directory.join("data.sqlite").as_os_str().as_bytes())
            .map_err(|_| "a path with a zero byte".to_owned())?;
        let mut database = null_mut();
        // SAFETY: the path ends; a handle is given even when it fails, and closed in `drop`.
        let code = unsafe { (library.sqlite3_open)(path.as_ptr(), &raw mut database) };
        let connection = Connection {
            library,
            database,
            statements: HashMap::new(),
        };
        connection.done("open", code)?;
        connection.execute(c"PRAGMA journal_mode = WAL")?;
        connection.execute(c"PRAGMA synchronous = FULL")?;
        connection.execute(c"PRAGMA cache_size = -1048576")?;
        Ok(Sqlite(Mutex::new(connection)))
    }

    fn table(&self, table: u32) -> Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).table(table)
    }

    fn group(&self, work: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .transaction(work)
    }

    fn get<R>(tx: &Tx<'_>, table: u32, key: u64, look: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        let Connection {
            library, statements, ..
        } = tx.0;
        let statement = statements[&table].get;
        tx.step(statement, key, |code| {
            (code == ROW).then(|| {
                // SAFETY: the statement stands on a row, whose blob stays until it is reset.
                let bytes = unsafe {
                    let data: *const u8 = (library.sqlite3_column_blob)(statement, 0).cast();
                    let len = (library.sqlite3_column_bytes)(statement, 0) as usize;
                    match len {
                        0 => &[],
                        _ => std::slice::from_raw_parts(data, len),
                    }
                };
                look(bytes)
            })
        })
    }

    fn put(tx: &mut Tx<'_>, table: u32, key: u64, value: &[u8]) -> Result<()> {
        let Connection {
            library, statements, ..
        } = tx.0;
        let statement = statements[&table].put;
        // SAFETY: the value outlives the step below, and is bound again before the next: no copy is asked for.
        let code = unsafe {
            (library.sqlite3_bind_blob)(
                statement,
                2,
                value.as_ptr().cast(),
                value.len() as c_int,
                null_mut(),
            )
        };
        tx.0.done("bind", code)?;
        tx.step(statement, key, |_| ())
    }

    fn remove(tx: &mut Tx<'_>, table: u32, key: u64) -> Result<bool> {
        tx.step(tx.0.statements[&table].remove, key, |_| ())?;
        // SAFETY: the database is open, and no other thread uses it now.
        Ok(unsafe { (tx.0.library.sqlite3_changes)(tx.0.database) } == 1)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        for statements in self.statements.values() {
            for statement in [statements.get, statements.put, statements.remove] {
                // SAFETY: prepared on this connection, finalised once.
                unsafe { (self.library.sqlite3_finalize)(statement) };
            }
        }
        // SAFETY: nothing is left that uses it.
        unsafe { (self.library.sqlite3_close)(self.database) };
    }
}
