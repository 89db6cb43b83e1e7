//! Joules: so much a command, so much a second.

/// What commands cost, and standing by.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize)]
pub struct Model {
    /// Opening a row and closing it again.
    pub activate_j: f64,
    /// Reading a line from an open row.
    pub read_j: f64,
    /// Writing a line.
    pub write_j: f64,
    /// Refreshing a rank once.
    pub refresh_j: f64,
    /// A rank with every row closed.
    pub idle_w: f64,
    /// A rank with a row open.
    pub open_w: f64,
    /// Whether these are of each rank; otherwise a channel has them once. It follows from how the file gives energy.
    #[serde(skip)]
    pub by_rank: bool,
}

/// Commands issued, to be priced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Commands {
    /// Rows opened.
    pub activates: u64,
    /// Rows closed.
    pub precharges: u64,
    /// Lines read.
    pub reads: u64,
    /// Lines written.
    pub writes: u64,
    /// Of the lines read and written, those that were the first after their row was opened: the others found it
    /// open.
    pub first_reads: u64,
    /// The same of writes.
    pub first_writes: u64,
    /// Ranks refreshed.
    pub refreshes: u64,
}

impl std::iter::Sum for Commands {
    fn sum<I: Iterator<Item = Commands>>(all: I) -> Commands {
        all.fold(Commands::default(), |sum, one| Commands {
            activates: sum.activates + one.activates,
            precharges: sum.precharges + one.precharges,
            reads: sum.reads + one.reads,
            writes: sum.writes + one.writes,
            first_reads: sum.first_reads + one.first_reads,
            first_writes: sum.first_writes + one.first_writes,
            refreshes: sum.refreshes + one.refreshes,
        })
    }
}

impl Model {
    /// Joules of the commands alone.
    #[must_use]
    pub fn commands_j(&self, done: &Commands) -> f64 {
        self.activate_j * done.activates as f64
            + self.read_j * done.reads as f64
            + self.write_j * done.writes as f64
            + self.refresh_j * done.refreshes as f64
    }

    /// Joules of standing by: `rank_s` seconds of ranks in all, `open_s` of them with a row open.
    #[must_use]
    pub fn standing_j(&self, rank_s: f64, open_s: f64) -> f64 {
        self.idle_w * (rank_s - open_s).max(0.0) + self.open_w * open_s
    }
}
