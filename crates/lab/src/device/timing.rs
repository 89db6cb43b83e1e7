//! The constraints between commands, in cycles (JESD79-3F names).

/// All of a device's timing, resolved to cycles of its clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Timing {
    /// A command's way to the device, where the others do not include it.
    pub command: u64,
    /// Read to first data.
    pub cl: u64,
    /// Write to first data.
    pub cwl: u64,
    /// Data of one line on the bus.
    pub burst: u64,
    /// Activate to read or write.
    pub rcd: u64,
    /// Precharge to activate.
    pub rp: u64,
    /// Activate to precharge.
    pub ras: u64,
    /// Activate to activate, same bank.
    pub rc: u64,
    /// Column command to column command, same rank.
    pub ccd: u64,
    /// Activate to activate, same rank.
    pub rrd: u64,
    /// Four activates of a rank.
    pub faw: u64,
    /// End of write data to precharge.
    pub wr: u64,
    /// End of write data to read, same rank.
    pub wtr: u64,
    /// Read to precharge.
    pub rtp: u64,
    /// From one rank's data to another's.
    pub rtrs: u64,
    /// The bank is busy writing its cells for so long after the data (non-volatile memories).
    pub write_pulse: u64,
    /// Refresh to refresh of a rank; 0 if there is none.
    pub refi: u64,
    /// A refresh.
    pub rfc: u64,
}

impl Timing {
    /// Read to read, same rank: the bus must be free too.
    #[must_use]
    pub fn read_to_read(&self) -> u64 {
        self.ccd.max(self.burst)
    }

    /// Write to write, same rank.
    #[must_use]
    pub fn write_to_write(&self) -> u64 {
        self.ccd.max(self.burst)
    }

    /// Write to write, same bank: the cells must have been written too.
    #[must_use]
    pub fn write_to_next(&self) -> u64 {
        match self.write_pulse {
            0 => self.write_to_write(),
            pulse => self.write_to_write().max(self.cwl + self.burst + pulse),
        }
    }

    /// Either to the same, another rank.
    #[must_use]
    pub fn across_ranks(&self) -> u64 {
        self.burst + self.rtrs
    }

    /// Read to write, any rank: the bus turns round.
    #[must_use]
    pub fn read_to_write(&self) -> u64 {
        (self.cl + self.burst + self.rtrs).saturating_sub(self.cwl)
    }

    /// Write to read, same rank.
    #[must_use]
    pub fn write_to_read(&self) -> u64 {
        self.cwl + self.burst + self.wtr
    }

    /// Write to read, another rank.
    #[must_use]
    pub fn write_to_read_across(&self) -> u64 {
        (self.cwl + self.burst + self.rtrs).saturating_sub(self.cl)
    }

    /// Write to precharge.
    #[must_use]
    pub fn write_to_precharge(&self) -> u64 {
        self.cwl + self.burst + self.wr + self.write_pulse
    }

    /// Read command to its data's end, as the asker sees it.
    #[must_use]
    pub fn read_latency(&self) -> u64 {
        self.command + self.cl + self.burst
    }

    /// Write command to its data safely in the cells.
    #[must_use]
    pub fn write_latency(&self) -> u64 {
        self.command + self.cwl + self.burst + self.wr + self.write_pulse
    }
}
