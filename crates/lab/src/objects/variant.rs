//! The mechanisms of Table 7.

/// How the copies in NVM are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Two copies, a resilient index and its log-resilient mask (3.2.2): the paper's own.
    Dual,
    /// A checkpoint, and a copy of it (Figure 6, 2).
    Double,
    /// The old data is copied aside, then written over (Figure 6, 3).
    CopyOnWrite,
    /// Two places in a file on an SSD, written in turn.
    File,
}

/// Who runs a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Execution {
    /// Its caller, under the lock.
    Direct,
    /// The thread that commits a group, with all others of the group: as many servers as this.
    Servers(usize),
}

/// What is done to the log, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Log {
    /// There is none.
    None,
    /// Flushed when a group is full, with the instant entry that ends it: one fence.
    Group,
    /// Flushed when a group is full, then the instant entry, its commit mark: two fences (3.1.1).
    Marked,
    /// Each entry is flushed when it is written (Figure 2a).
    Each,
}

/// A mechanism.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Variant {
    /// Its name, as in Table 7.
    pub name: &'static str,
    /// The copies.
    pub form: Option<Form>,
    /// Whether a checkpoint is made after each function rather than after a group.
    pub each: bool,
    /// Who runs functions.
    pub execution: Execution,
    /// The log.
    pub log: Log,
}

const fn direct(name: &'static str, form: Form, each: bool) -> Variant {
    Variant {
        name,
        form: Some(form),
        each,
        execution: Execution::Direct,
        log: Log::Group,
    }
}

const fn combined(name: &'static str, servers: usize, log: Log) -> Variant {
    Variant {
        name,
        form: Some(Form::Dual),
        each: false,
        execution: Execution::Servers(servers),
        log,
    }
}

/// No persistence.
pub const NATIVE: Variant = Variant {
    name: "native",
    form: None,
    each: false,
    execution: Execution::Direct,
    log: Log::None,
};

/// All of them, as Table 7 orders them; then one that the paper only draws (Figure 6, 2).
pub const ALL: [Variant; 10] = [
    NATIVE,
    direct("cow", Form::CopyOnWrite, false),
    direct("ssd", Form::File, true),
    direct("nvram", Form::Dual, true),
    direct("hybrid", Form::Dual, false),
    combined("fc", 1, Log::Group),
    combined("m-server", 2, Log::Group),
    combined("simpo-all", 2, Log::Each),
    combined("simpo", 2, Log::Marked),
    direct("double", Form::Double, false),
];

impl Variant {
    /// The mechanism with this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Variant> {
        ALL.into_iter().find(|variant| variant.name == name)
    }

    /// What Table 7 has a column for, and whether the variant has that.
    #[must_use]
    pub fn mechanisms(&self) -> [(&'static str, bool); 6] {
        let is_logged = self.log != Log::None;
        let is_served = matches!(self.execution, Execution::Servers(_));
        [
            (
                "BDC checkpointing",
                matches!(self.form, Some(Form::Dual | Form::File)),
            ),
            (
                "NVRAM usage",
                is_logged && self.form.is_some_and(|form| form != Form::File),
            ),
            ("group-based persistence", is_logged && !self.each),
            ("flat combining", is_served),
            (
                "multiple servers",
                matches!(self.execution, Execution::Servers(2..)),
            ),
            (
                "transactionized function grouping",
                matches!(self.name, "simpo-all" | "simpo"),
            ),
        ]
    }
}
