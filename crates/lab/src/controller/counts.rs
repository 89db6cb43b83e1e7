//! What a controller counts.
//!
//! * Counts only grow; what happened in a stretch of time is what they grew by.
//! * A line written to NVM counts twice: by what the controller wanted, and by what the scheme wrote it for.

use twinpage_core::medium::Cause;

/// The purpose of writing a line to NVM.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A page left the DRAM cache, or a line was written through.
    Eviction,
    /// A page got dirty and was prepared for it.
    PreAllocation,
    /// The pages of a checkpoint.
    Checkpoint,
    /// The commit: context and metadata.
    Commit,
}

/// What happened so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Counts {
    /// Lines asked for by the caches, and written back by them.
    pub reads: u64,
    /// Lines written back.
    pub writes: u64,
    /// Requests of either kind that found their page in DRAM.
    pub hits: u64,
    /// Requests of either kind that brought in a page.
    pub misses: u64,
    /// Dirty pages evicted.
    pub evictions: u64,
    /// Pages given to the scheme with some dirty lines, evicted or at a checkpoint.
    pub pages_written: u64,
    /// Their dirty lines: the others were clean.
    pub dirty_lines: u64,
    /// Pages written in an epoch, each once for the epoch.
    pub epoch_pages: u64,
    /// Lines of theirs that were dirty in it.
    pub epoch_lines: u64,
    /// Pages prepared when they got dirty.
    pub prepared: u64,
    /// Of these, how many found no room (pre-allocation failures).
    pub prepare_failures: u64,
    /// Lines of DRAM copied aside because the checkpoint still needed them.
    pub kept_lines: u64,
    /// NVM lines read.
    pub nvm_reads: u64,
    /// NVM lines written, by [`Why`].
    pub nvm_writes: [u64; 4],
    /// The same lines, by what the scheme wrote them for: [`Cause::ALL`].
    pub nvm_causes: [u64; Cause::ALL.len()],
}

impl Counts {
    /// What happened since `before`.
    #[must_use]
    pub fn since(&self, before: &Counts) -> Counts {
        Counts {
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            hits: self.hits - before.hits,
            misses: self.misses - before.misses,
            evictions: self.evictions - before.evictions,
            pages_written: self.pages_written - before.pages_written,
            dirty_lines: self.dirty_lines - before.dirty_lines,
            epoch_pages: self.epoch_pages - before.epoch_pages,
            epoch_lines: self.epoch_lines - before.epoch_lines,
            prepared: self.prepared - before.prepared,
            prepare_failures: self.prepare_failures - before.prepare_failures,
            kept_lines: self.kept_lines - before.kept_lines,
            nvm_reads: self.nvm_reads - before.nvm_reads,
            nvm_writes: std::array::from_fn(|purpose| self.nvm_writes[purpose] - before.nvm_writes[purpose]),
            nvm_causes: std::array::from_fn(|cause| self.nvm_causes[cause] - before.nvm_causes[cause]),
        }
    }
}

/// The lines of each page that were written in this epoch.
#[derive(Debug)]
pub(super) struct Written {
    /// By page.
    lines: Vec<u64>,
    /// Those with lines.
    pages: Vec<u64>,
}

impl Written {
    pub(super) fn new(pages: u64) -> Written {
        Written {
            lines: vec![0; pages as usize],
            pages: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, page: u64, lines: u64) {
        let written = &mut self.lines[page as usize];
        if *written == 0 {
            self.pages.push(page);
        }
        *written |= lines;
    }

    /// How many pages and lines there were; none are left.
    pub(super) fn take(&mut self) -> [u64; 2] {
        let pages = self.pages.len() as u64;
        let of = |page: u64| std::mem::take(&mut self.lines[page as usize]).count_ones();
        let lines = self.pages.drain(..).map(of).map(u64::from).sum();
        [pages, lines]
    }
}
