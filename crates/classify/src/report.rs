//! The classes of methods, for people.

use crate::{Class, Method, Reason};
use serde::Serialize;
use std::fmt;

/// How many methods of an object are of each class (Table 4 gives the ratio).
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Summary {
    /// The type.
    pub object: String,
    /// Its deferrable methods.
    pub deferrable: usize,
    /// Its instant methods.
    pub instant: usize,
}

impl Summary {
    /// A summary of each object, in the order of their first methods.
    #[must_use]
    pub fn of(methods: &[Method]) -> Vec<Summary> {
        let mut all: Vec<Summary> = Vec::new();
        for method in methods {
            let known = all.iter().position(|summary| summary.object == method.object);
            let at = known.unwrap_or_else(|| {
                all.push(Summary {
                    object: method.object.clone(),
                    deferrable: 0,
                    instant: 0,
                });
                all.len() - 1
            });
            match method.class {
                Class::Deferrable => all[at].deferrable += 1,
                Class::Instant => all[at].instant += 1,
            }
        }
        all
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} deferrable, {} instant",
            self.object, self.deferrable, self.instant
        )
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = match self.class {
            Class::Deferrable => "deferrable",
            Class::Instant => "instant",
        };
        write!(f, "{class:10}  {}", self.name)?;
        if let Some(lane) = &self.lane {
            write!(f, ", in the lane of {lane}")?;
        }
        if self.overruled {
            write!(f, ", as it is marked")?;
        }
        self.reasons.iter().try_for_each(|reason| write!(f, "\n{reason}"))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "    {}: ", self.at)?;
        for (name, _) in &self.through {
            write!(f, "`{name}`: ")?;
        }
        write!(f, "{}", self.why)?;
        if let Some((_, place)) = self.through.last() {
            write!(f, " ({place})")?;
        }
        write!(f, "\n        {}", self.way_out)
    }
}
