//! Which command goes next.
//!
//! * Of each bank with requests the next command, as far as the bank alone decides it, is kept
//!   ([`super::queue::Head`]) until something of the bank changes; what the rank and the bus add is looked up.
//! * What is chosen stays so until a command is issued or a request enters. A request that comes to a bank
//!   without any is compared with what is chosen, and with nothing else.

use super::bank::Command;
use super::channel::Channel;
use super::choice::{Choice, Key};
use super::queue::Head;
use super::request::{Kind, Request};

impl Channel {
    /// Makes sure that what is chosen is current.
    #[inline]
    pub(super) fn choose(&mut self) {
        if !self.chosen.is_current {
            self.find();
        }
    }

    fn find(&mut self) {
        let view = self.view();
        self.chosen = Choice { view, ..Choice::NONE };
        self.look(Kind::Read, view[Kind::Read as usize]);
        self.look(Kind::Write, view[Kind::Write as usize]);
        self.decide();
    }

    /// The banks whose reads and whose writes may go.
    fn view(&mut self) -> [u64; 2] {
        let [reads, writes] = &self.queues;
        let full = writes.demand >= self.drain[0];
        let over = writes.demand <= self.drain[1] && reads.count > 0;
        self.writing = (self.writing && !over) || full || reads.count == 0;
        let [read, written] = self.owed;
        match self.writing {
            true => [reads.any & read, writes.any & !read],
            false => [
                reads.any & !written,
                writes.any & (written | !writes.demand_banks & !reads.any),
            ],
        }
    }

    /// Takes the best of the banks `among` if it is better than what is chosen.
    #[inline]
    fn look(&mut self, kind: Kind, mut among: u64) {
        if among == 0 {
            return;
        }
        self.rechoose(kind, among);
        let heads = &self.queues[kind as usize].heads;
        let (shared, floor) = (self.banks.shared(), self.now.max(self.banks.command()));
        let Choice {
            key,
            mut column,
            mut own_column,
            ..
        } = self.chosen;
        let (mut best, mut bank, command) = (key, 0, kind.column() as usize);
        while among != 0 {
            let number = among.trailing_zeros();
            among &= among - 1;
            let head = &heads[number as usize];
            let cycle = head.ready.max(shared[usize::from(head.shared & 63)]).max(floor);
            let data = shared[usize::from(head.shared & 60) | command];
            let data = data.max(cycle + u64::from(head.to_column));
            column = column.min(data);
            let key = Key::from(cycle) << 64 | Key::from(head.tag);
            let better = key < best;
            best = if better { key } else { best };
            bank = if better { number } else { bank };
            own_column = if better { data } else { own_column };
        }
        self.chosen.column = column;
        self.chosen.own_column = own_column;
        if best < key {
            self.chosen.key = best;
            self.chosen.kind = kind;
            self.chosen.bank = bank as u16;
        }
    }

    /// What is chosen stays so.
    fn decide(&mut self) {
        let floor = self.now.max(self.banks.command());
        // A refresh may close a row, and so bring an access nearer.
        let refreshed = self.banks.refresh_due().max(floor);
        self.chosen.bound = match self.chosen.column {
            u64::MAX => u64::MAX,
            column => column.min(refreshed) + self.latency,
        };
        self.chosen.is_current = true;
    }

    /// The only request of its time enters its queue. Where it changes nothing but its bank's part, what
    /// is chosen is compared with that alone.
    pub(super) fn come_alone(&mut self, request: Request) {
        let (kind, bit) = (request.kind, 1 << request.bank);
        let was_current = self.chosen.is_current;
        let was_there = self.queues[kind as usize].any & bit != 0;
        self.insert(request);
        if was_there || !was_current {
            return;
        }
        let view = self.view();
        let is_seen = view[kind as usize] & bit;
        self.chosen.view[kind as usize] |= is_seen;
        if view == self.chosen.view {
            self.look(kind, is_seen);
            self.decide();
        }
    }

    /// Something of these banks changed.
    #[inline]
    pub(super) fn changed(&mut self, banks: u64) {
        for queue in &mut self.queues {
            queue.stale |= banks;
        }
    }

    /// Finds again what changed in the banks `among`.
    #[inline]
    fn rechoose(&mut self, kind: Kind, among: u64) {
        let stale = &mut self.queues[kind as usize].stale;
        let mut banks = *stale & among;
        *stale &= !among;
        while banks != 0 {
            self.rechoose_bank(kind, banks.trailing_zeros() as usize);
            banks &= banks - 1;
        }
    }

    fn rechoose_bank(&mut self, kind: Kind, bank: usize) {
        let queue = &self.queues[kind as usize];
        let streak_over = self.streaks[bank] >= self.hit_streak;
        let favour = self.banks.row(bank).filter(|_| !streak_over);
        let (place, waiting) = queue.choose(bank, favour);
        let request = &waiting.request;
        let column = kind.column();
        let command = self.banks.next(bank, request.row, column);
        let (place, class, order, arrival) = (place, request.class, waiting.order, request.arrival);
        let to_column = self.to_column(command);
        self.queues[kind as usize].heads[bank] = Head {
            ready: self.banks.own(command, bank).max(arrival),
            tag: Head::tag(command == column, class, order),
            shared: (self.banks.rank(bank) * 4 + command as usize) as u16,
            place: place as u16,
            to_column: to_column as u32,
        };
    }

    /// Cycles from a command to the column command, at least.
    #[inline]
    pub(super) fn to_column(&self, command: Command) -> u64 {
        match command {
            Command::Precharge => self.timing.rp + self.timing.rcd,
            Command::Activate => self.timing.rcd,
            Command::Read | Command::Write => 0,
        }
    }
}
