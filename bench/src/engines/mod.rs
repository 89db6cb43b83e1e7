//! The engines: native memory, twinpage, and the peers.

mod berkeley;
mod library;
mod lmdb;
mod native;
mod pmemobj;
mod redb;
mod rocksdb;
mod schemes;
mod sections;
mod sqlite;
mod store;
mod twinpage;

pub(crate) use berkeley::BerkeleyDb;
pub(crate) use lmdb::Lmdb;
pub(crate) use native::Native;
pub(crate) use pmemobj::Pmemobj;
pub(crate) use redb::Redb;
pub(crate) use rocksdb::RocksDb;
pub(crate) use schemes::open;
pub(crate) use sections::Sections;
pub(crate) use sqlite::Sqlite;
pub(crate) use store::Stored;
pub(crate) use twinpage::{Twinpage, failed};
