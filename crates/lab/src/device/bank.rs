//! Banks that obey the timing: when may a command go, and what does it forbid then?
//!
//! * `earliest` and `issue` are the only two questions; the order of service is not decided here.
//! * A command issued before its earliest cycle is a bug, and a debug build says so.

use super::energy::Commands;
use super::timing::Timing;

/// A command to a bank. Reads and writes come last, so that what they wait for lies together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Opens a row buffer.
    Activate,
    /// Closes it.
    Precharge,
    /// Reads one line from it.
    Read,
    /// Writes one line.
    Write,
}

/// Consecutive lines of one row buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The bank, over all ranks of the channel.
    pub bank: u16,
    /// Lines, one at least.
    pub lines: u16,
    /// The row buffer.
    pub row: u64,
}

/// No row is open.
const CLOSED: u64 = u64::MAX;

/// Cycles until the next read and the next write, in this order, after a column command.
#[derive(Clone, Copy, Debug)]
struct Gaps {
    /// Of the same rank.
    same: [u64; 2],
    /// Of another rank.
    other: [u64; 2],
}

impl Gaps {
    fn after_read(timing: &Timing) -> Gaps {
        let write = timing.read_to_write();
        Gaps {
            same: [timing.read_to_read(), write],
            other: [timing.across_ranks(), write],
        }
    }

    fn after_write(timing: &Timing) -> Gaps {
        Gaps {
            same: [timing.write_to_read(), timing.write_to_write()],
            other: [timing.write_to_read_across(), timing.across_ranks()],
        }
    }
}

#[derive(Clone, Debug)]
struct Bank {
    row: u64,
    /// Nothing was read from or written to the row since it was opened.
    is_fresh: bool,
    /// When each command may go, as far as the bank alone decides it.
    ready: [u64; 4],
}

impl Bank {
    /// The command waits until a cycle.
    #[inline]
    fn delay(&mut self, command: Command, until: u64) {
        let ready = &mut self.ready[command as usize];
        *ready = (*ready).max(until);
    }
}

#[derive(Clone, Debug)]
struct Rank {
    activate: u64,
    /// When the last four activates let another go, oldest at `oldest`.
    window: [u64; 4],
    oldest: usize,
    /// When the next refresh is due; `u64::MAX` if never.
    refresh: u64,
    open: u32,
    /// Since when a row is open.
    open_since: u64,
    open_cycles: u64,
}

/// Ranks a channel can have.
const RANKS: usize = 16;

/// The banks of one channel.
#[derive(Clone, Debug)]
pub struct Banks {
    timing: Timing,
    per_rank: usize,
    /// A bank's number without this many bits is its rank's.
    bank_bits: u32,
    after_read: Gaps,
    after_write: Gaps,
    banks: Vec<Bank>,
    ranks: Vec<Rank>,
    /// What commands to a rank must wait for, by rank and command.
    shared: [u64; 4 * RANKS],
    /// The first of the next refreshes.
    refresh: u64,
    /// The next cycle the command bus is free.
    command: u64,
    /// What was issued.
    pub done: Commands,
}

impl Banks {
    /// All closed, at cycle 0. Ranks refresh in turn. Banks of a rank are a power of two.
    #[must_use]
    pub fn new(timing: Timing, ranks: usize, per_rank: usize) -> Banks {
        debug_assert!(per_rank.is_power_of_two());
        let bank = Bank {
            row: CLOSED,
            is_fresh: false,
            ready: [0; 4],
        };
        let rank = |number: usize| Rank {
            activate: 0,
            window: [0; 4],
            oldest: 0,
            refresh: match timing.refi {
                0 => u64::MAX,
                refi => refi * (number as u64 + 1) / ranks as u64,
            },
            open: 0,
            open_since: 0,
            open_cycles: 0,
        };
        let mut banks = Banks {
            timing,
            per_rank,
            bank_bits: per_rank.trailing_zeros(),
            after_read: Gaps::after_read(&timing),
            after_write: Gaps::after_write(&timing),
            banks: vec![bank; ranks * per_rank],
            ranks: (0..ranks).map(rank).collect(),
            shared: [0; 4 * RANKS],
            refresh: 0,
            command: 0,
            done: Commands::default(),
        };
        banks.refresh = banks.first_refresh();
        banks
    }

    /// The rank of a bank.
    #[inline]
    pub(super) fn rank(&self, bank: usize) -> usize {
        bank >> self.bank_bits
    }

    /// The open row of a bank.
    #[must_use]
    pub fn row(&self, bank: usize) -> Option<u64> {
        Some(self.banks[bank].row).filter(|&row| row != CLOSED)
    }

    /// The first cycle from `now` on at which the command may go.
    #[must_use]
    #[inline]
    pub fn earliest(&self, command: Command, bank: usize, now: u64) -> u64 {
        let rank = self.rank(bank);
        self.own(command, bank)
            .max(self.shared[rank * 4 + command as usize])
            .max(self.command)
            .max(now)
    }

    /// The part of [`Banks::earliest`] that only commands to this bank, and refresh, can change.
    #[must_use]
    #[inline]
    pub fn own(&self, command: Command, bank: usize) -> u64 {
        self.banks[bank].ready[command as usize]
    }

    /// The part that commands to the rank's other banks, and to other ranks, can change: by rank and
    /// command, four a rank.
    #[inline]
    pub(super) fn shared(&self) -> &[u64; 4 * RANKS] {
        &self.shared
    }

    /// The next cycle the command bus is free.
    #[inline]
    pub(super) fn command(&self) -> u64 {
        self.command
    }

    /// The command that brings a bank nearer to serving `row`.
    #[must_use]
    #[inline]
    pub fn next(&self, bank: usize, row: u64, column: Command) -> Command {
        match self.banks[bank].row {
            open if open == row => column,
            CLOSED => Command::Activate,
            _ => Command::Precharge,
        }
    }

    /// Issues the command at `cycle`; `row` counts for an activate alone.
    pub fn issue(&mut self, command: Command, bank: usize, row: u64, cycle: u64) {
        debug_assert!(
            cycle >= self.earliest(command, bank, 0),
            "{command:?} of bank {bank} at {cycle} is too early"
        );
        self.command = cycle + 1;
        match command {
            Command::Activate => self.activate(bank, row, cycle),
            Command::Precharge => self.precharge(bank, cycle),
            Command::Read => self.reads(bank, cycle, 1),
            Command::Write => self.writes(bank, cycle, cycle, 1),
        }
    }

    /// Brings a row into its buffer, each command as early as bank and rank allow, from `now` on. One
    /// command a cycle is not enforced: a line's data takes several.
    #[inline]
    pub(super) fn open(&mut self, bank: usize, row: u64, now: u64) {
        if self.banks[bank].row == row {
            return;
        }
        if self.banks[bank].row != CLOSED {
            self.precharge(bank, self.own(Command::Precharge, bank).max(now));
        }
        self.activate(bank, row, self.ready(Command::Activate, bank, now));
    }

    /// The first cycle from `now` on that bank and rank allow the command.
    #[inline]
    pub(super) fn ready(&self, command: Command, bank: usize, now: u64) -> u64 {
        let shared = self.shared[self.rank(bank) * 4 + command as usize];
        self.own(command, bank).max(shared).max(now)
    }

    /// A column command of the open row at `cycle` and `lines - 1` more behind it, each as soon as bus and
    /// bank are free. Says when the last goes. Where writes keep the bank busy the bus is taken for all of
    /// them at once.
    #[inline(always)]
    pub(super) fn columns(&mut self, command: Command, bank: usize, cycle: u64, lines: u16) -> u64 {
        let more = u64::from(lines - 1);
        match command {
            Command::Read => {
                let last = cycle + more * self.timing.read_to_read();
                self.reads(bank, last, lines);
                last
            }
            _ => {
                let last = cycle + more * self.timing.write_to_next();
                let bus = cycle + more * self.timing.write_to_write();
                self.writes(bank, last, bus, lines);
                last
            }
        }
    }

    /// The command bus is taken at this cycle.
    #[inline]
    pub(super) fn take_bus(&mut self, cycle: u64) {
        self.command = cycle + 1;
    }

    /// Reads runs of many banks in order, each command as early as its bank and rank allow, from `now`
    /// on. Says when the last goes.
    pub fn sweep(&mut self, runs: &[Run], now: u64) -> u64 {
        let mut last = now;
        for run in runs {
            let bank = usize::from(run.bank);
            self.open(bank, run.row, now);
            let first = self.ready(Command::Read, bank, last);
            last = self.columns(Command::Read, bank, first, run.lines);
        }
        last
    }

    #[inline(always)]
    fn activate(&mut self, bank: usize, row: u64, at: u64) {
        let timing = &self.timing;
        let state = &mut self.banks[bank];
        state.row = row;
        state.is_fresh = true;
        state.delay(Command::Read, at + timing.rcd);
        state.delay(Command::Write, at + timing.rcd);
        state.delay(Command::Precharge, at + timing.ras);
        state.delay(Command::Activate, at + timing.rc);
        let number = self.rank(bank);
        let rank = &mut self.ranks[number];
        rank.window[rank.oldest] = at + timing.faw;
        rank.oldest = (rank.oldest + 1) % 4;
        rank.activate = rank.activate.max(at + timing.rrd);
        self.shared[number * 4 + Command::Activate as usize] = rank.activate.max(rank.window[rank.oldest]);
        if rank.open == 0 {
            rank.open_since = at;
        }
        rank.open += 1;
        self.done.activates += 1;
    }

    #[inline(always)]
    fn precharge(&mut self, bank: usize, at: u64) {
        let state = &mut self.banks[bank];
        state.row = CLOSED;
        state.delay(Command::Activate, at + self.timing.rp);
        let rank = self.rank(bank);
        let rank = &mut self.ranks[rank];
        rank.open -= 1;
        if rank.open == 0 {
            rank.open_cycles += at.saturating_sub(rank.open_since);
        }
        self.done.precharges += 1;
    }

    /// So many reads, the last at `at`.
    #[inline(always)]
    fn reads(&mut self, bank: usize, at: u64, lines: u16) {
        let state = &mut self.banks[bank];
        self.done.first_reads += u64::from(std::mem::take(&mut state.is_fresh));
        state.delay(Command::Precharge, at + self.timing.rtp);
        self.keep_apart(bank, at, self.after_read);
        self.done.reads += u64::from(lines);
    }

    /// So many writes, the last at `at` for the bank and at `bus` for the others.
    #[inline(always)]
    fn writes(&mut self, bank: usize, at: u64, bus: u64, lines: u16) {
        let timing = &self.timing;
        let state = &mut self.banks[bank];
        self.done.first_writes += u64::from(std::mem::take(&mut state.is_fresh));
        state.delay(Command::Precharge, at + timing.write_to_precharge());
        if timing.write_pulse > 0 {
            let busy = at + timing.write_to_next();
            state.delay(Command::Read, busy);
            state.delay(Command::Write, busy);
        }
        self.keep_apart(bank, bus, self.after_write);
        self.done.writes += u64::from(lines);
    }

    /// A column command of the bank at `at` has the channel's other reads and writes wait.
    #[inline(always)]
    fn keep_apart(&mut self, bank: usize, at: u64, gaps: Gaps) {
        let own = self.rank(bank);
        let (ranks, _) = self.shared.as_chunks_mut::<4>();
        for (number, shared) in ranks[..self.ranks.len()].iter_mut().enumerate() {
            let [read, write] = if number == own { gaps.same } else { gaps.other };
            let [.., next_read, next_write] = shared;
            *next_read = (*next_read).max(at + read);
            *next_write = (*next_write).max(at + write);
        }
    }

    /// Does every refresh due by `cycle`. Closes the rank's rows. Says whether there was one.
    pub fn refresh(&mut self, cycle: u64) -> bool {
        let mut any = false;
        for number in 0..self.ranks.len() {
            while self.ranks[number].refresh <= cycle {
                self.refresh_rank(number, cycle);
                any = true;
            }
        }
        self.refresh = self.first_refresh();
        any
    }

    /// When the next refresh is due.
    #[must_use]
    #[inline]
    pub fn refresh_due(&self) -> u64 {
        self.refresh
    }

    fn first_refresh(&self) -> u64 {
        self.ranks
            .iter()
            .map(|rank| rank.refresh)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// The refresh of a rank that is due. Of those long past in an idle time only the last can delay
    /// anything; the others are counted.
    fn refresh_rank(&mut self, number: usize, cycle: u64) {
        let timing = self.timing;
        let banks = number * self.per_rank..(number + 1) * self.per_rank;
        let mut due = self.ranks[number].refresh;
        let quiet = self.banks[banks.clone()]
            .iter()
            .all(|bank| bank.row == CLOSED && bank.ready[Command::Activate as usize] <= due);
        if quiet && due + timing.refi <= cycle {
            let skipped = (cycle - due) / timing.refi;
            self.done.refreshes += skipped;
            due += skipped * timing.refi;
        }
        let mut start = due;
        for bank in banks.clone() {
            start = start.max(match self.banks[bank].row {
                CLOSED => self.own(Command::Activate, bank),
                _ => self.own(Command::Precharge, bank).max(due) + timing.rp,
            });
        }
        // Until the refresh has gone no other command does: it is the channel's first.
        self.command = self.command.max(start + 1);
        for bank in banks {
            if self.banks[bank].row != CLOSED {
                self.precharge(bank, start - timing.rp);
            }
            self.banks[bank].delay(Command::Activate, start + timing.rfc);
        }
        self.ranks[number].refresh = due + timing.refi;
        self.done.refreshes += 1;
    }

    /// Cycles in which a rank had a row open, summed over ranks, until `now`.
    #[must_use]
    pub fn open_cycles(&self, now: u64) -> u64 {
        let open = |rank: &Rank| {
            rank.open_cycles
                + if rank.open > 0 {
                    now.saturating_sub(rank.open_since)
                } else {
                    0
                }
        };
        self.ranks.iter().map(open).sum()
    }
}
