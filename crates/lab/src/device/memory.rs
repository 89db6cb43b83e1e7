//! A whole memory: addresses cut into channels, ranks, banks, rows; runs cut at row buffers.
//!
//! ```text
//! address, from the top:  | row | bank | rank | channel | column |
//!                                                        bytes of a row
//! ```

use super::bank::Run;
use super::channel::{Channel, Class, Done, Kind, Request};
use super::energy::Commands;
use super::spec::Device;

/// A memory of some channels.
#[derive(Clone, Debug)]
pub struct Memory {
    device: Device,
    channels: Vec<Channel>,
    map: Map,
}

/// How addresses are cut.
#[derive(Clone, Copy, Debug)]
struct Map {
    column_bits: u32,
    channel_bits: u32,
    rank_bits: u32,
    bank_bits: u32,
    buffer_bits: u32,
    bytes: u64,
}

/// Where an address lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Location {
    /// The channel.
    pub channel: usize,
    /// The bank, over all ranks of the channel.
    pub bank: u16,
    /// The row buffer, over all rows of the bank.
    pub row: u64,
}

impl Memory {
    /// An idle memory.
    #[must_use]
    pub fn new(device: Device) -> Memory {
        let channel = Channel::new(&device);
        Memory {
            channels: vec![channel; device.channels as usize],
            map: Map {
                column_bits: device.row_bytes.trailing_zeros(),
                channel_bits: device.channels.trailing_zeros(),
                rank_bits: device.ranks.trailing_zeros(),
                bank_bits: device.banks.trailing_zeros(),
                buffer_bits: device.buffer_bytes.trailing_zeros(),
                bytes: device.bytes(),
            },
            device,
        }
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Where the byte at `at` lies. Addresses past the end wrap round.
    #[must_use]
    pub fn place(&self, at: u64) -> Location {
        self.map.place(at)
    }

    /// Asks for `lines` lines from `at`, at `cycle`. Says in how many requests: each is done by itself.
    ///
    /// Nobody hears of requests called [`super::NOBODY`].
    pub fn push(&mut self, id: u64, kind: Kind, class: Class, at: u64, lines: u64, cycle: u64) -> u32 {
        let end = (at & ((1 << self.map.buffer_bits) - 1)) + lines * 64;
        if end <= 1 << self.map.buffer_bits {
            let Location { channel, bank, row } = self.map.place(at);
            let lines = lines as u16;
            self.channels[channel].push(Request::new(id, kind, class, Run { bank, lines, row }, cycle));
            return 1;
        }
        if kind == Kind::Read {
            return self.push_sweep(id, class, &[(at, lines)], cycle);
        }
        let mut requests = 0;
        for (channel, run) in self.map.runs(at, lines) {
            self.channels[channel].push(Request::new(id, kind, class, run, cycle));
            requests += 1;
        }
        requests
    }

    /// Asks to read pieces, each that many lines from an address, at `cycle`, as one request to each channel
    /// they lie in. Says how many.
    pub fn push_sweep(&mut self, id: u64, class: Class, pieces: &[(u64, u64)], cycle: u64) -> u32 {
        let map = self.map;
        let mut requests = 0;
        for (number, channel) in self.channels.iter_mut().enumerate() {
            let collect = |runs: &mut Vec<Run>| {
                for &(at, lines) in pieces {
                    let here = map.runs(at, lines).filter(|&(channel, _)| channel == number);
                    here.for_each(|(_, run)| runs.push(run));
                }
            };
            requests += u32::from(channel.push_sweep(id, class, cycle, collect));
        }
        requests
    }

    /// Whether a request for `at` would enter its queue at once.
    #[must_use]
    pub fn has_room(&self, kind: Kind, at: u64) -> bool {
        self.channels[self.place(at).channel].has_room(kind)
    }

    /// Requests that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.channels.iter().map(Channel::waiting).sum()
    }

    /// Works up to `cycle`; `tell` hears of all that became known to be done.
    #[inline]
    pub fn run_until(&mut self, cycle: u64, mut tell: impl FnMut(Done)) {
        for channel in &mut self.channels {
            channel.run_until(cycle).for_each(&mut tell);
        }
    }

    /// The first cycle at which something can be issued; `u64::MAX` when nothing waits.
    pub fn next_cycle(&mut self) -> u64 {
        self.channels
            .iter_mut()
            .map(Channel::next_cycle)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Nothing not known yet is done before this cycle; `u64::MAX` when nothing waits.
    #[must_use]
    #[inline]
    pub fn bound(&self) -> u64 {
        self.channels.iter().map(Channel::bound).min().unwrap_or(u64::MAX)
    }

    /// The last cycle any channel has worked up to.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.channels.iter().map(Channel::now).max().unwrap_or(0)
    }

    /// Commands issued, all channels together.
    #[must_use]
    pub fn commands(&self) -> Commands {
        self.channels.iter().map(|channel| channel.banks().done).sum()
    }

    /// Joules used until `cycle`.
    #[must_use]
    pub fn energy_j(&self, cycle: u64) -> f64 {
        let seconds = |cycles: u64| cycles as f64 * self.device.cycle_fs as f64 * 1e-15;
        let ranks = u64::from(self.device.channels) * u64::from(self.device.ranks);
        let open = self
            .channels
            .iter()
            .map(|channel| channel.banks().open_cycles(cycle))
            .sum();
        let standing = match self.device.energy.refresh_j > 0.0 {
            true => self
                .device
                .energy
                .standing_j(seconds(cycle * ranks), seconds(open)),
            // Leakage is the whole channel's.
            false => self.device.energy.idle_w * seconds(cycle * u64::from(self.device.channels)),
        };
        self.device.energy.commands_j(&self.commands()) + standing
    }
}

impl Map {
    /// The runs of row buffers that lines lie in, and their channels.
    #[inline]
    fn runs(self, at: u64, lines: u64) -> impl Iterator<Item = (usize, Run)> {
        let buffer_bytes = 1_u64 << self.buffer_bits;
        let (mut at, mut left) = (at, lines);
        std::iter::from_fn(move || {
            let room = (buffer_bytes - (at & (buffer_bytes - 1))).div_ceil(64);
            let lines = left.min(room) as u16;
            let Location { channel, bank, row } = self.place(at);
            at += u64::from(lines) * 64;
            left -= u64::from(lines);
            (lines > 0).then_some((channel, Run { bank, lines, row }))
        })
    }

    #[inline]
    fn place(&self, at: u64) -> Location {
        let at = at & (self.bytes - 1);
        let take = |from: u32, bits: u32| (at >> from) & ((1 << bits) - 1);
        let mut from = self.column_bits;
        let channel = take(from, self.channel_bits);
        from += self.channel_bits;
        let rank = take(from, self.rank_bits);
        from += self.rank_bits;
        let bank = take(from, self.bank_bits);
        from += self.bank_bits;
        let buffers = take(self.buffer_bits, self.column_bits - self.buffer_bits);
        Location {
            channel: channel as usize,
            bank: ((rank << self.bank_bits) | bank) as u16,
            row: ((at >> from) << (self.column_bits - self.buffer_bits)) | buffers,
        }
    }
}
