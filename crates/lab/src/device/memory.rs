//! A whole memory: addresses cut into channels, ranks, banks, rows; runs cut at row buffers.
//!
//! ```text
//! address, from the top:  | row | bank | rank | channel | column |
//!                                                        bytes of a row
//! ```

use super::bank::Run;
use super::channel::Channel;
use super::energy::Commands;
use super::request::{Class, Done, Kind, Request};
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
    channel: Field,
    rank: Field,
    bank: Field,
    /// The row buffers of a row.
    buffers: Field,
    bank_bits: u32,
    buffer_bits: u32,
    row_shift: u32,
    bytes: u64,
}

/// Some bits of an address.
#[derive(Clone, Copy, Debug)]
struct Field {
    shift: u32,
    mask: u64,
}

impl Field {
    /// `bits` bits, from bit `shift` on.
    fn new(shift: u32, bits: u32) -> Field {
        let mask = (1 << bits) - 1;
        Field { shift, mask }
    }

    #[inline]
    fn of(self, at: u64) -> u64 {
        at >> self.shift & self.mask
    }
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
            map: Map::new(&device),
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
    /// The end of a request called [`super::UNTOLD`] is not told.
    pub fn push(&mut self, id: u64, kind: Kind, class: Class, at: u64, lines: u64, cycle: u64) -> u32 {
        if lines * 64 <= self.map.left_of_buffer(at) {
            let Location { channel, bank, row } = self.map.place(at);
            let lines = lines as u16;
            self.channels[channel].push(Request::new(id, kind, class, Run { bank, lines, row }, cycle));
            return 1;
        }
        if kind == Kind::Read {
            return self.push_sweep(id, class, &[(at, lines)], cycle);
        }
        let mut requests = 0;
        self.map.runs(at, lines, |channel, run| {
            self.channels[channel].push(Request::new(id, kind, class, run, cycle));
            requests += 1;
        });
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
                    map.runs(at, lines, |channel, run| {
                        if channel == number {
                            runs.push(run);
                        }
                    });
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
        let standing = match self.device.energy.by_rank {
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
    fn new(device: &Device) -> Map {
        let bits = |count: u64| count.trailing_zeros();
        let (column, buffer) = (bits(device.row_bytes), bits(device.buffer_bytes));
        let channel = Field::new(column, device.channels.trailing_zeros());
        let rank = Field::new(
            channel.shift + device.channels.trailing_zeros(),
            device.ranks.trailing_zeros(),
        );
        let bank_bits = device.banks.trailing_zeros();
        let bank = Field::new(rank.shift + device.ranks.trailing_zeros(), bank_bits);
        Map {
            channel,
            rank,
            bank,
            buffers: Field::new(buffer, column - buffer),
            bank_bits,
            buffer_bits: column - buffer,
            row_shift: bank.shift + bank_bits,
            bytes: device.bytes(),
        }
    }

    /// Bytes from here to the end of the row buffer.
    #[inline]
    fn left_of_buffer(&self, at: u64) -> u64 {
        let bytes = 1_u64 << self.buffers.shift;
        bytes - (at & (bytes - 1))
    }

    /// Tells the runs of row buffers that lines lie in, each with its channel.
    #[inline]
    fn runs(&self, mut at: u64, lines: u64, mut tell: impl FnMut(usize, Run)) {
        let mut left = lines;
        while left > 0 {
            let lines = left.min(self.left_of_buffer(at).div_ceil(64));
            let Location { channel, bank, row } = self.place(at);
            at += lines * 64;
            left -= lines;
            let lines = lines as u16;
            tell(channel, Run { bank, lines, row });
        }
    }

    #[inline]
    fn place(&self, at: u64) -> Location {
        let at = at & (self.bytes - 1);
        let row = at >> self.row_shift << self.buffer_bits;
        Location {
            channel: self.channel.of(at) as usize,
            bank: (self.rank.of(at) << self.bank_bits | self.bank.of(at)) as u16,
            row: row | self.buffers.of(at),
        }
    }
}
