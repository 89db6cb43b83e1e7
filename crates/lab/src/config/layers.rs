//! A machine file over another, and single values over both.
//!
//! * `base = "dpc"` in a machine file: what the file does not say, its base says. A base is a built-in machine, or
//!   a file beside the one that names it.
//! * `nvm.channels=2` sets one value, as `--set` and `--sweep` have it. A value is written as in the file; text
//!   needs no quotes.
//! * Keys that no machine has are errors here as everywhere.

use super::Described;
use crate::text::{ConfigError, SourceText, find};
use std::path::Path;
use toml::{Table, Value};

/// How many machines may stand on one another.
const DEPTH: usize = 8;

/// Machine files of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Their machines, in the plural, for errors.
    pub(crate) machines: &'static str,
    /// The machines that come with the lab: name and text.
    pub(crate) built_in: &'static [(&'static str, &'static str)],
}

/// A machine's text put together.
struct Layers {
    /// What to call it in errors.
    name: String,
    table: Table,
}

fn wrong(file: &str, what: impl Into<String>) -> ConfigError {
    ConfigError {
        file: file.into(),
        what: what.into(),
    }
}

impl Kind {
    /// The machine called `name`, a built-in one or a file, with single values `set` over it.
    ///
    /// # Errors
    /// There is no such machine; or what is wrong with its text, in which line, or with a value that is set.
    pub(super) fn read<Machine: Described>(
        &self,
        name: &str,
        set: &[String],
    ) -> Result<Machine, ConfigError> {
        let (name, text) = find(name, self.machines, self.built_in)?;
        let Some(Layers { name, table }) = self.combine(name, &text, set)? else {
            return Machine::parse(name, &text);
        };
        let said = table
            .try_into()
            .map_err(|why: toml::de::Error| wrong(&name, why.to_string().trim_end()))?;
        let source = SourceText {
            file: &name,
            text: "",
        };
        Machine::resolve(source, said)
    }

    /// The text put together, or `None` where it stands alone, and its lines can be named in errors.
    fn combine(&self, name: &str, text: &str, set: &[String]) -> Result<Option<Layers>, ConfigError> {
        // What is wrong with the text itself is told with its line, by those who read it alone.
        let Ok(table) = text.parse::<Table>() else {
            return Ok(None);
        };
        if set.is_empty() && !table.contains_key("base") {
            return Ok(None);
        }
        let mut names = name.to_owned();
        let mut table = self.on_its_base(name, table, &mut names, DEPTH)?;
        for setting in set {
            apply(&mut table, setting).map_err(|why| wrong(name, format!("--set {setting}: {why}")))?;
            names += &format!(", {setting}");
        }
        Ok(Some(Layers { name: names, table }))
    }

    /// The table with what its base says where it says nothing.
    fn on_its_base(
        &self,
        name: &str,
        mut table: Table,
        names: &mut String,
        depth: usize,
    ) -> Result<Table, ConfigError> {
        let base = match table.remove("base") {
            None => return Ok(table),
            Some(Value::String(base)) => base,
            Some(_) => return Err(wrong(name, "`base` is the name of a machine, or a file")),
        };
        if depth == 0 {
            return Err(wrong(
                name,
                format!("its bases stand on one another without end, or more than {DEPTH} deep"),
            ));
        }
        *names += &format!(" on {base}");
        let beside = Path::new(name).parent().map(|folder| folder.join(&base));
        let is_built_in = self.built_in.iter().any(|(known, _)| *known == base);
        let path = match beside {
            Some(path) if !is_built_in => path.display().to_string(),
            _ => base,
        };
        let (_, text) = find(&path, self.machines, self.built_in)?;
        let below: Table = text.parse().map_err(|why| wrong(&path, format!("{why}")))?;
        let mut below = self.on_its_base(&path, below, names, depth - 1)?;
        lay(&mut below, table);
        Ok(below)
    }
}

/// Puts `above` over `below`, key by key.
fn lay(below: &mut Table, above: Table) {
    for (key, value) in above {
        match (below.get_mut(&key), value) {
            // A quantity with its source is one value, not a table of values.
            (Some(Value::Table(mine)), Value::Table(other))
                if !mine.contains_key("is") && !other.contains_key("is") =>
            {
                lay(mine, other);
            }
            (_, value) => drop(below.insert(key, value)),
        }
    }
}

/// Sets the value that `nvm.channels=2` names.
fn apply(table: &mut Table, setting: &str) -> Result<(), String> {
    let (path, text) = setting
        .split_once('=')
        .ok_or("expected TABLE.KEY=VALUE, such as nvm.channels=2")?;
    let text = text.trim();
    let read = format!("value = {text}").parse::<Table>().ok();
    let value = match read.and_then(|mut read| read.remove("value")) {
        Some(value) => value,
        None => Value::String(text.to_owned()),
    };
    let mut keys: Vec<&str> = path.trim().split('.').collect();
    let last = keys.pop().unwrap_or_default();
    let mut here = table;
    for key in keys {
        let names = here.keys().cloned().collect::<Vec<_>>().join(", ");
        here = match here.get_mut(key) {
            Some(Value::Table(inner)) => inner,
            _ => return Err(format!("there is no table {key}; there are {names}")),
        };
    }
    here.insert(last.to_owned(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::config::Described;
    use crate::config::machine::Config;
    use crate::{bus, objects, sections};

    #[test]
    fn a_machine_says_only_how_it_differs_from_its_base() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let write = |name: &str, text: &str| std::fs::write(path(name), text).unwrap();
        write(
            "mine.toml",
            "base = \"dpc\"\nname = \"mine\"\n[nvm]\nchannels = 2\n",
        );
        write(
            "yours.toml",
            "base = \"mine.toml\"\n[table]\nbackup = \"journal\"\n",
        );
        let dpc = Config::find("dpc").unwrap();
        let mine = Config::find(&path("mine.toml")).unwrap();
        let yours = Config::find(&path("yours.toml")).unwrap();
        assert_eq!(
            (mine.name.as_str(), mine.plan.controller.nvm.channels),
            ("mine", 2)
        );
        assert_eq!(mine.plan.controller.nvm.bytes(), dpc.plan.controller.nvm.bytes());
        assert_eq!(mine.plan.pool_pages, dpc.plan.pool_pages);
        assert_ne!(yours.hash(), mine.hash());
        let set = |values: &[&str]| {
            let values: Vec<String> = values.iter().map(|&value| value.to_owned()).collect();
            Config::with("dpc", &values)
        };
        let same = set(&["name=mine", "nvm.channels=2", "table.backup=journal"]).unwrap();
        assert_eq!(same.hash(), yours.hash());
        let pool = set(&["pool.size=100 MiB"]).unwrap();
        assert_eq!(pool.plan.pool_pages * 3, dpc.plan.pool_pages);
        for (value, expected) in [
            ("nvm.chanels=2", "unknown field `chanels`"),
            ("nvm.channels=3", "`channels` of [nvm]"),
            ("nvm.size=8", "expected"),
            ("checkpoint.interval=999999999999 cycles", "expected"),
            ("cpu.clock=0.001 MHz", "expected"),
            ("cpu.front.branch=1 s", "a millisecond at most"),
            ("nwm.channels=2", "there is no table nwm"),
            ("channels", "expected TABLE.KEY=VALUE"),
        ] {
            let refused = set(&[value]).unwrap_err().to_string();
            assert!(
                refused.contains(expected) && refused.contains(value),
                "{value}: {refused}"
            );
        }
        for by in [0, 3, 1 << 63] {
            assert!(dpc.smaller(by).is_err(), "{by} times smaller");
        }
        write("round.toml", "base = \"round.toml\"\n");
        let refused = Config::find(&path("round.toml")).unwrap_err().to_string();
        assert!(refused.contains("without end"), "{refused}");
    }

    #[test]
    fn machines_of_every_kind_stand_on_others() {
        let folder = tempfile::tempdir().unwrap();
        let file = |base: &str, text: &str| {
            let path = folder.path().join(format!("{base}.toml"));
            std::fs::write(&path, format!("base = \"{base}\"\n{text}")).unwrap();
            path.display().to_string()
        };
        let (small, one) = (["tlb.entries=8".into()], ["memory.channels=1".into()]);
        let sections = sections::Config::find(&file("ssp", "[tlb]\nentries = 8\n")).unwrap();
        assert_eq!(sections, sections::Config::with("ssp", &small).unwrap());
        assert_eq!(sections.setting.tlb_entries, 8);
        let bus = bus::Config::find(&file("mss", "[memory]\nchannels = 1\n")).unwrap();
        assert_eq!(bus, bus::Config::with("mss", &one).unwrap());
        assert_ne!(bus, bus::Config::find("mss").unwrap());
        let objects = objects::Config::find(&file("simpo-intel", "[memory]\nchannels = 1\n")).unwrap();
        assert_eq!(objects, objects::Config::with("simpo-intel", &one).unwrap());
        assert_ne!(objects, objects::Config::find("simpo-intel").unwrap());
        // A machine of another kind is none to stand on; a value that cannot be is told with its setting.
        let refused = sections::Config::find(&file("dpc", "")).unwrap_err().to_string();
        assert!(
            refused.contains("the built-in machines with sections are ssp"),
            "{refused}"
        );
        let none = ["tlb.entries=0".into()];
        let refused = sections::Config::with("ssp", &none).unwrap_err().to_string();
        assert!(
            refused.contains("tlb.entries=0") && refused.contains("1 to 1024"),
            "{refused}"
        );
    }
}
