//! What memory holds before a run, made once for all runs that begin with it.
//!
//! Runs of a workload with different schemes begin with the same bytes, and making those (drawing a graph,
//! say) takes as long as some of the runs. The last few images are kept.

use super::Workload;
use super::list::Setting;
use crate::space::Space;
use std::sync::{Arc, Mutex, OnceLock};

/// Images kept: one for each processor that is likely to be at another workload.
const KEPT: usize = 2;

#[derive(Clone, PartialEq, Debug)]
struct Key {
    workload: String,
    setting: Setting,
}

#[derive(Debug)]
struct Image {
    key: Key,
    space: Arc<OnceLock<Space>>,
}

/// The images, the latest used last.
#[derive(Debug, Default)]
pub struct Images(Mutex<Vec<Image>>);

impl Images {
    /// What `workload`, made as `name` with this setting, begins with.
    pub(crate) fn filled(&self, name: &str, setting: &Setting, workload: &dyn Workload) -> Space {
        let image = self.find(name, setting);
        image.get_or_init(|| filled(workload)).clone()
    }

    fn find(&self, name: &str, setting: &Setting) -> Arc<OnceLock<Space>> {
        let key = Key {
            workload: name.to_owned(),
            setting: *setting,
        };
        let mut all = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let image = match all.iter().position(|image| image.key == key) {
            Some(place) => all.remove(place),
            None => Image {
                key,
                space: Arc::default(),
            },
        };
        let space = image.space.clone();
        all.push(image);
        if all.len() > KEPT {
            all.remove(0);
        }
        space
    }
}

/// What the workload begins with.
pub(crate) fn filled(workload: &dyn Workload) -> Space {
    let mut space = Space::new(workload.footprint_bytes());
    workload.fill(&mut space);
    space
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::list;

    #[test]
    fn a_run_begins_with_what_it_would_make_itself() {
        let images = Images::default();
        for seed in [1, 2, 1, 3, 1] {
            let setting = Setting {
                scale: 1.0 / 1024.0,
                cores: 4,
                seed,
            };
            for name in ["pagerank", "tatp"] {
                let workload = list::make(name, &setting).unwrap();
                let mut copy = images.filled(name, &setting, &*workload);
                assert!(copy == filled(&*workload), "{name}, seed {seed}");
                copy.bytes_mut().fill(7);
            }
            assert_eq!(images.0.lock().unwrap().len(), KEPT);
        }
    }
}
