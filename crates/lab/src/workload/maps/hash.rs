//! A hash table of SSP, Table 3: that of the other programs.

use super::{Contents, Map};
use crate::space::{Port, Space};
use crate::workload::layout::{Layout, peek};
use crate::workload::table::{ROW_HEAD, Table};

/// Key, next row, value.
const ROW: u64 = ROW_HEAD + 8;

pub(super) struct Hash {
    table: Table,
    keys: u64,
}

impl Hash {
    pub(super) fn new(layout: &mut Layout, keys: u64) -> Hash {
        Hash {
            table: Table::new(layout, keys, ROW),
            keys,
        }
    }
}

impl Map for Hash {
    fn create(&self, _: &mut Port<'_>) {}

    fn toggle(&self, port: &mut Port<'_>, key: u64, value: u64) {
        if self.table.find(port, key).is_some() {
            self.table.remove(port, key);
            return;
        }
        let row = self.table.insert(port, key).expect("room for every key");
        port.store(row + ROW_HEAD, value);
    }

    fn contents(&self, space: &Space) -> Result<Contents, String> {
        let row = |key| Some((key, peek(space, self.table.peek(space, key)? + ROW_HEAD)));
        let found: Contents = (0..self.keys).filter_map(row).collect();
        let rows = self.table.count(space)?;
        match rows == found.len() as u64 {
            true => Ok(found),
            false => Err(format!("{rows} rows, {} keys", found.len())),
        }
    }
}
