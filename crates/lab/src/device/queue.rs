//! The requests of one kind that wait at a channel, by bank.
//!
//! * A bank's requests lie in order of age; which of them goes next, and its next command, is kept until
//!   something of the bank changes, and found again when asked for.

use super::request::{Class, Kind, Request};
use std::collections::VecDeque;

/// A request in the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) request: Request,
    pub(super) order: u64,
}

/// A bank's next command, as far as the bank alone decides it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Head {
    /// Not before this cycle.
    pub(super) ready: u64,
    /// Ranks commands of the same cycle: lower goes first.
    pub(super) tag: u64,
    /// Which of the shared constraints counts: rank and command.
    pub(super) shared: u16,
    /// The request's place in the bank's queue.
    pub(super) place: u16,
    /// Cycles from this command to the column command, at least.
    pub(super) to_column: u32,
}

impl Head {
    /// Column commands first, then demand, then age.
    pub(super) fn tag(column: bool, class: Class, order: u64) -> u64 {
        u64::from(!column) << 63 | (class as u64) << 62 | order
    }
}

/// Banks a channel can have.
const BANKS: usize = 64;

/// The queue.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    pub(super) room: usize,
    /// Places that background requests leave free.
    spare: usize,
    pub(super) count: usize,
    /// Demand requests among them.
    pub(super) demand: usize,
    banks: Vec<Vec<Waiting>>,
    pub(super) heads: [Head; BANKS],
    /// Banks whose heads are to be found again.
    pub(super) stale: u64,
    /// Banks with requests, and those with demand requests.
    pub(super) any: u64,
    pub(super) demand_banks: u64,
    /// Requests that found it full, by class.
    front: [VecDeque<Request>; 2],
    /// How many of each class a bank holds.
    classes: Vec<[u16; 2]>,
}

impl Queue {
    pub(super) fn new(kind: Kind, room: usize, banks: usize) -> Queue {
        Queue {
            room,
            spare: match kind {
                Kind::Read => 0,
                Kind::Write => room.div_ceil(4),
            },
            count: 0,
            demand: 0,
            banks: vec![Vec::new(); banks],
            heads: [Head::default(); BANKS],
            stale: 0,
            any: 0,
            demand_banks: 0,
            front: [VecDeque::new(), VecDeque::new()],
            classes: vec![[0; 2]; banks],
        }
    }

    /// Requests in it and in front of it.
    pub(super) fn waiting(&self) -> usize {
        self.count + self.front[0].len() + self.front[1].len()
    }

    /// A request comes to the end of those of its class.
    pub(super) fn come(&mut self, request: Request) {
        self.front[request.class as usize].push_back(request);
    }

    /// The request that may enter the queue now: demand first, and background leaves places free.
    pub(super) fn enter(&mut self) -> Option<Request> {
        if self.count < self.room
            && let Some(request) = self.front[Class::Demand as usize].pop_front()
        {
            return Some(request);
        }
        match self.count + self.spare < self.room {
            true => self.front[Class::Background as usize].pop_front(),
            false => None,
        }
    }

    /// Whether a request of the class enters as it comes.
    pub(super) fn is_open(&self, class: Class) -> bool {
        let spare = match class {
            Class::Demand => 0,
            Class::Background => self.spare,
        };
        self.front[class as usize].is_empty() && self.count + spare < self.room
    }

    pub(super) fn insert(&mut self, request: Request, order: u64) {
        let bank = usize::from(request.bank);
        self.banks[bank].push(Waiting { request, order });
        self.count += 1;
        self.any |= 1 << bank;
        self.stale |= 1 << bank;
        self.classes[bank][request.class as usize] += 1;
        if request.class == Class::Demand {
            self.demand += 1;
            self.demand_banks |= 1 << bank;
        }
    }

    /// The bank's next request.
    pub(super) fn head(&mut self, bank: usize) -> &mut Request {
        let place = usize::from(self.heads[bank].place);
        &mut self.banks[bank][place].request
    }

    /// The bank's next request leaves.
    pub(super) fn remove(&mut self, bank: usize) {
        let waiting = &mut self.banks[bank];
        let gone = match waiting.len() {
            1 => waiting.pop(),
            _ => Some(waiting.remove(usize::from(self.heads[bank].place))),
        };
        let gone = gone.expect("a bank with requests");
        self.count -= 1;
        self.classes[bank][gone.request.class as usize] -= 1;
        self.demand -= usize::from(gone.request.class == Class::Demand);
        if self.classes[bank][Class::Demand as usize] == 0 {
            self.demand_banks &= !(1 << bank);
        }
        if self.banks[bank].is_empty() {
            self.any &= !(1 << bank);
        }
    }

    /// The bank's next request: by class, then the row in `favour`, then age.
    #[inline]
    pub(super) fn choose(&self, bank: usize, favour: Option<u64>) -> (usize, &Waiting) {
        let all = &self.banks[bank];
        match &all[..] {
            [only] => (0, only),
            _ => self.choose_of_many(bank, favour),
        }
    }

    fn choose_of_many(&self, bank: usize, favour: Option<u64>) -> (usize, &Waiting) {
        let class = match self.classes[bank][Class::Demand as usize] {
            0 => Class::Background,
            _ => Class::Demand,
        };
        let mut oldest = None;
        for (place, waiting) in self.banks[bank].iter().enumerate() {
            if waiting.request.class == class {
                if favour.is_none() || favour == Some(waiting.request.row) {
                    return (place, waiting);
                }
                oldest = oldest.or(Some((place, waiting)));
            }
        }
        oldest.expect("a bank with requests")
    }
}
