//! libpmemobj: transactions over persistent memory, with an undo log of the ranges they name.
//!
//! * `PMEM_IS_PMEM_FORCE=1` is set for the process that measures it, so stores are made durable with cache
//!   line flushes on any memory mapping: on an ordinary disk that is faster than what would survive there.
//! * A group is one transaction when operations are grouped, and each operation one when they are not.
//! * Pointers are offsets from the pool's address, which is what its own `pmemobj_direct` makes of them.
//! * The pool has a fixed size, given when it is made.
//! * No lock is held by several threads: each has structures of its own.

mod hash;
mod tree;

use super::library::c_library;
use crate::engine::{Engine, Kind, Name, Pace, Plain, Result, StoreOptions, TABLES};
use hash::Hash;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use tree::Tree;

/// `PMEMoid`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Oid {
    pool: u64,
    offset: u64,
}

type Pool = *mut c_void;

c_library!(Library, ["libpmemobj.so.1"], "libpmemobj1", {
    pmemobj_create: unsafe extern "C" fn(*const c_char, *const c_char, usize, u32) -> Pool,
    pmemobj_open: unsafe extern "C" fn(*const c_char, *const c_char) -> Pool,
    pmemobj_close: unsafe extern "C" fn(Pool),
    pmemobj_root: unsafe extern "C" fn(Pool, usize) -> Oid,
    pmemobj_tx_begin: unsafe extern "C" fn(Pool, *mut c_void, ...) -> c_int,
    pmemobj_tx_commit: unsafe extern "C" fn(),
    pmemobj_tx_abort: unsafe extern "C" fn(c_int),
    pmemobj_tx_end: unsafe extern "C" fn() -> c_int,
    pmemobj_tx_add_range_direct: unsafe extern "C" fn(*const c_void, usize) -> c_int,
    pmemobj_tx_alloc: unsafe extern "C" fn(usize, u64) -> Oid,
    pmemobj_tx_zalloc: unsafe extern "C" fn(usize, u64) -> Oid,
    pmemobj_tx_free: unsafe extern "C" fn(Oid) -> c_int,
    pmemobj_errormsg: unsafe extern "C" fn() -> *const c_char,
});

/// `TX_PARAM_NONE`.
const NO_PARAMETER: c_int = 0;
const CANCELLED: c_int = 125;
const POOL_BYTES: usize = 2 << 30;
/// Room for the least data that a workload has: to make a large pool takes seconds.
const LEAST_POOL_BYTES: usize = 64 << 20;
const THREADS: u32 = 16;

/// The root object: where each table is.
type Root = [u64; (TABLES * THREADS) as usize];

pub(crate) struct Pmemobj {
    library: Library,
    pool: Pool,
    /// The pool's number, in each of its pointers.
    number: u64,
    root: *mut Root,
    pace: Pace,
}

// SAFETY: a pool may be used by all threads; each transaction stays on its thread, and so does what it changes.
unsafe impl Sync for Pmemobj {}

/// A group; whether a transaction is open around all of it.
pub(crate) struct Tx<'t> {
    store: &'t Pmemobj,
    grouped: bool,
}

pub(crate) enum Map<V> {
    Hash(Hash<V>),
    Tree(Tree<V>),
}

/// An array in one allocation.
pub(crate) struct Array<V> {
    first: *mut V,
}

// SAFETY: what it points to lives as long as the pool, and only the thread that holds it changes it.
unsafe impl<V: Send> Send for Array<V> {}

impl Pmemobj {
    fn why(&self) -> String {
        // SAFETY: the message of this thread's last error ends.
        unsafe { CStr::from_ptr((self.library.pmemobj_errormsg)()) }
            .to_string_lossy()
            .into_owned()
    }

    fn at<T>(&self, offset: u64) -> *mut T {
        self.pool.cast::<u8>().wrapping_add(offset as usize).cast()
    }

    fn offset<T>(&self, at: *const T) -> u64 {
        (at as usize - self.pool as usize) as u64
    }

    /// All of `work`, or nothing.
    fn transaction<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        // SAFETY: begun, then committed or aborted, then ended, on this thread; no jump buffer is given.
        unsafe {
            if (self.library.pmemobj_tx_begin)(self.pool, std::ptr::null_mut(), NO_PARAMETER) != 0 {
                return Err(format!("libpmemobj: begin: {}", self.why()));
            }
            let outcome = work();
            match outcome {
                Ok(_) => (self.library.pmemobj_tx_commit)(),
                Err(_) => (self.library.pmemobj_tx_abort)(CANCELLED),
            }
            let ended = (self.library.pmemobj_tx_end)();
            if outcome.is_ok() && ended != 0 {
                return Err(format!("libpmemobj: commit: {}", self.why()));
            }
            outcome
        }
    }

    /// Before a range is written, in a transaction.
    fn add<T>(&self, at: *const T) -> Result<()> {
        self.add_bytes(at.cast(), size_of::<T>())
    }

    fn add_bytes(&self, at: *const u8, bytes: usize) -> Result<()> {
        // SAFETY: the range lies in the pool, and a transaction is open.
        match unsafe { (self.library.pmemobj_tx_add_range_direct)(at.cast(), bytes) } {
            0 => Ok(()),
            _ => Err(format!("libpmemobj: add a range: {}", self.why())),
        }
    }

    fn allocate<T>(&self, bytes: usize, zeroed: bool) -> Result<*mut T> {
        let allocate = if zeroed {
            self.library.pmemobj_tx_zalloc
        } else {
            self.library.pmemobj_tx_alloc
        };
        // SAFETY: a transaction is open.
        match unsafe { allocate(bytes, 1) }.offset {
            0 => Err(format!("libpmemobj: allocate {bytes} bytes: {}", self.why())),
            offset => Ok(self.at(offset)),
        }
    }

    fn free<T>(&self, at: *const T) -> Result<()> {
        let oid = Oid {
            pool: self.number,
            offset: self.offset(at),
        };
        // SAFETY: it was allocated from this pool, is freed once, and a transaction is open.
        match unsafe { (self.library.pmemobj_tx_free)(oid) } {
            0 => Ok(()),
            _ => Err(format!("libpmemobj: free: {}", self.why())),
        }
    }

    /// Where the table `name` begins; made by `make` when it is not there.
    fn table<T>(&self, name: Name, make: impl FnOnce() -> Result<*mut T>) -> Result<*mut T> {
        // SAFETY: the root is an array of this many offsets, and each thread uses its own.
        let slot = unsafe { &raw mut (*self.root)[name.number() as usize] };
        // SAFETY: as above.
        match unsafe { *slot } {
            0 => self.transaction(|| {
                let made = make()?;
                self.add(slot)?;
                // SAFETY: as above; the old value is in the log.
                unsafe { *slot = self.offset(made) };
                Ok(made)
            }),
            offset => Ok(self.at(offset)),
        }
    }
}

impl Engine for Pmemobj {
    type Tx<'t, 'r> = Tx<'t>;
    type Map<V: Plain> = Map<V>;
    type Array<V: Plain> = Array<V>;

    const WRITES_BY_CALLS: bool = false;

    fn open(place: &StoreOptions) -> Result<Self> {
        let library = Library::load()?;
        let path = place.directory.join("pool");
        let exists = path.exists();
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| "a path with a zero byte")?;
        let layout = c"twinpage-bench".as_ptr();
        let scaled = (POOL_BYTES as f64 * place.scale) as usize;
        let pool_bytes = scaled.clamp(LEAST_POOL_BYTES, POOL_BYTES);
        // SAFETY: both strings end; the sizes are those of the root that is asked for again on each open.
        let (pool, root) = unsafe {
            let pool = if exists {
                (library.pmemobj_open)(path.as_ptr(), layout)
            } else {
                (library.pmemobj_create)(path.as_ptr(), layout, pool_bytes, 0o600)
            };
            if pool.is_null() {
                let why = CStr::from_ptr((library.pmemobj_errormsg)()).to_string_lossy();
                return Err(format!("libpmemobj: open a pool: {why}"));
            }
            (pool, (library.pmemobj_root)(pool, size_of::<Root>()))
        };
        Ok(Pmemobj {
            library,
            pool,
            number: root.pool,
            root: pool.cast::<u8>().wrapping_add(root.offset as usize).cast(),
            pace: place.pace,
        })
    }

    fn map<V: Plain>(&self, name: Name, kind: Kind, expected: u64) -> Result<Map<V>> {
        Ok(match kind {
            Kind::Hash => Map::Hash(Hash::open(self, name, expected)?),
            Kind::Tree => Map::Tree(Tree::open(self, name)?),
        })
    }

    fn array<V: Plain>(&self, name: Name, len: u64, first: impl Fn(u64) -> V) -> Result<Array<V>> {
        let first = self.table(name, || {
            let all: *mut V = self.allocate(len as usize * size_of::<V>(), false)?;
            for at in 0..len {
                // SAFETY: the allocation has room for `len` values, and is in no checkpoint yet.
                unsafe { all.add(at as usize).write(first(at)) };
            }
            Ok(all)
        })?;
        Ok(Array { first })
    }

    fn group(&self, work: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let grouped = self.pace != Pace::Each;
        let mut tx = Tx { store: self, grouped };
        match grouped {
            true => self.transaction(|| work(&mut tx)),
            false => work(&mut tx),
        }
    }

    fn load(&self, work: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let mut tx = Tx {
            store: self,
            grouped: true,
        };
        self.transaction(|| work(&mut tx))
    }

    fn operate<R: 'static>(tx: &mut Tx<'_>, work: impl FnOnce(&mut Tx<'_>) -> Result<R>) -> Result<R> {
        match tx.grouped {
            true => work(tx),
            false => tx.store.transaction(|| work(tx)),
        }
    }

    fn get<V: Plain>(tx: &Tx<'_>, map: &Map<V>, key: u64) -> Result<Option<V>> {
        let found = match map {
            Map::Hash(hash) => hash.find(tx.store, key),
            Map::Tree(tree) => tree.find(tx.store, key),
        };
        // SAFETY: what is found is a whole value, which only this thread changes.
        Ok(found.map(|value| unsafe { *value }))
    }

    fn insert<V: Plain>(tx: &mut Tx<'_>, map: &mut Map<V>, key: u64, value: &V) -> Result<()> {
        if Self::modify(tx, map, key, |was| *was = *value)? {
            return Ok(());
        }
        match map {
            Map::Hash(hash) => hash.insert(tx.store, key, value),
            Map::Tree(tree) => tree.insert(tx.store, key, value),
        }
    }

    fn toggle<V: Plain>(tx: &mut Tx<'_>, map: &mut Map<V>, key: u64, value: &V) -> Result<bool> {
        let removed = match map {
            Map::Hash(hash) => hash.remove(tx.store, key)?,
            Map::Tree(tree) => tree.remove(tx.store, key)?,
        };
        if !removed {
            match map {
                Map::Hash(hash) => hash.insert(tx.store, key, value)?,
                Map::Tree(tree) => tree.insert(tx.store, key, value)?,
            }
        }
        Ok(!removed)
    }

    fn modify<V: Plain>(
        tx: &mut Tx<'_>,
        map: &mut Map<V>,
        key: u64,
        change: impl FnOnce(&mut V),
    ) -> Result<bool> {
        let found = match map {
            Map::Hash(hash) => hash.find(tx.store, key),
            Map::Tree(tree) => tree.find(tx.store, key),
        };
        let Some(value) = found else {
            return Ok(false);
        };
        tx.store.add(value)?;
        // SAFETY: a whole value, in the log, which only this thread changes.
        change(unsafe { &mut *value });
        Ok(true)
    }

    fn at<V: Plain>(_: &Tx<'_>, array: &Array<V>, index: u64) -> Result<V> {
        // SAFETY: workloads stay inside the length they made the array with.
        Ok(unsafe { *array.first.add(index as usize) })
    }

    fn swap<V: Plain>(tx: &mut Tx<'_>, array: &mut Array<V>, a: u64, b: u64) -> Result<()> {
        // SAFETY: as above.
        let (a, b) = unsafe { (array.first.add(a as usize), array.first.add(b as usize)) };
        tx.store.add(a)?;
        tx.store.add(b)?;
        // SAFETY: as above; both are in the log.
        unsafe { std::ptr::swap(a, b) };
        Ok(())
    }

    fn change<V: Plain>(
        tx: &mut Tx<'_>,
        array: &mut Array<V>,
        index: u64,
        change: impl FnOnce(&mut V),
    ) -> Result<()> {
        // SAFETY: as above.
        let value = unsafe { array.first.add(index as usize) };
        tx.store.add(value)?;
        // SAFETY: as above; it is in the log.
        change(unsafe { &mut *value });
        Ok(())
    }
}

impl Drop for Pmemobj {
    fn drop(&mut self) {
        // SAFETY: nothing is left that uses the pool.
        unsafe { (self.library.pmemobj_close)(self.pool) };
    }
}

/// What a structure holds of values it only points to.
type Holds<V> = PhantomData<V>;
