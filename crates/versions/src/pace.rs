//! How often updates are handed over to be made durable: "other conditions" of Algorithm 1.

/// When updates are handed over to the persistence thread.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pace {
    /// As soon as it has nothing else to do.
    Immediate,
    /// So many times for each update (the paper's persistence threshold, 4.4): 0.6 is six times in ten updates,
    /// each time all that was updated since. An update waits when the persistence thread falls behind.
    Threshold(f64),
    /// When a program asks: [`Versions::durable`](crate::Versions::durable), [`Ticket::wait`](crate::Ticket::wait).
    Manual,
}

/// The paper's choice.
impl Default for Pace {
    fn default() -> Pace {
        Pace::Threshold(0.6)
    }
}

/// By how many hand-overs the persistence thread may fall behind before an update waits for it.
const SLACK: f64 = 16.0;

/// Hand-overs that are owed by the pace.
#[derive(Debug)]
pub(crate) struct Owed {
    pace: Pace,
    owed: f64,
}

impl Owed {
    pub(crate) fn new(pace: Pace) -> Owed {
        Owed { pace, owed: 0.0 }
    }

    /// An update was done.
    pub(crate) fn add(&mut self) {
        if let Pace::Threshold(each) = self.pace {
            self.owed = (self.owed + each).min(SLACK + 1.0);
        }
    }

    /// Updates were handed over.
    pub(crate) fn pay(&mut self) {
        self.owed = (self.owed - 1.0).max(-SLACK);
    }

    /// Whether what was updated is to be handed over.
    pub(crate) fn is_due(&self) -> bool {
        match self.pace {
            Pace::Immediate => true,
            Pace::Threshold(_) => self.owed >= 1.0,
            Pace::Manual => false,
        }
    }

    /// Whether the persistence thread must be waited for.
    pub(crate) fn is_late(&self) -> bool {
        self.owed >= SLACK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_met() {
        for asked in [0.01, 0.2, 0.6, 1.0] {
            let (mut owed, mut handed) = (Owed::new(Pace::Threshold(asked)), 0);
            for _ in 0..10_000 {
                owed.add();
                if owed.is_due() {
                    owed.pay();
                    handed += 1;
                }
                assert!(!owed.is_late());
            }
            assert!((f64::from(handed) / 1e4 / asked - 1.0).abs() < 0.02, "{asked}");
        }
    }
}
