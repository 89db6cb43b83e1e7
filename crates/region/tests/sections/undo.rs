//! Random sections of which many fail, beside a model: what failed left nothing behind, in memory or in the file.

use super::support::{folders, when_free};
use super::{HOUR, bytes_of, sections};
use std::collections::BTreeMap as Model;
use std::panic::{AssertUnwindSafe, catch_unwind};
use twinpage::collections::{BTreeMap, HashMap, String as Text, Vec as List};
use twinpage::{Error, Handle, Region, SchemeKind, Section};

/// What a random section does, and the same to the model.
struct Script<'a> {
    region: &'a Region,
    words: Handle<HashMap<'static, Text<'static>, u64>>,
    tree: Handle<BTreeMap<'static, u64, List<'static, u64>>>,
    random: fastrand::Rng,
}

#[derive(Clone, Default, PartialEq, Debug)]
struct State {
    words: Model<String, u64>,
    tree: Model<u64, Vec<u64>>,
}

impl Script<'_> {
    fn change(&self, section: &Section<'_>, random: &mut fastrand::Rng, state: &mut State) {
        let (words, tree) = (self.words.write(section), self.tree.write(section));
        for _ in 0..random.usize(..12) {
            let key = random.u64(..60);
            let name = format!("word {key}");
            match random.u8(..12) {
                0..4 => {
                    words.insert(section.string(&name), key);
                    state.words.insert(name, key);
                }
                4 => {
                    words.remove(name.as_str());
                    state.words.remove(&name);
                }
                5 => {
                    words.shrink_to_fit();
                }
                6..9 => {
                    let numbers = (0..random.u64(..3000)).map(|k| k ^ key);
                    tree.insert(key, section.collect::<List<u64>>(numbers.clone()));
                    state.tree.insert(key, numbers.collect());
                }
                9..11 => {
                    tree.remove(&key);
                    state.tree.remove(&key);
                }
                _ if random.u8(..8) == 0 => {
                    // Larger than a step: the region grows, and gives most of it back later.
                    let mut list = List::new_in(section.heap());
                    list.resize(400_000, key);
                    tree.insert(1000, list);
                    state.tree.insert(1000, vec![key; 400_000]);
                }
                _ => {
                    tree.remove(&1000);
                    state.tree.remove(&1000);
                    section.heap().give_back().unwrap();
                }
            }
        }
    }

    fn found(&self) -> State {
        self.region.read(|view| State {
            words: self
                .words
                .read(view)
                .iter()
                .map(|(k, v)| (k.to_string(), *v))
                .collect(),
            tree: self
                .tree
                .read(view)
                .iter()
                .map(|(k, v)| (*k, v.to_vec()))
                .collect(),
        })
    }

    /// A section that ends well or not, and the state after it.
    fn step(&mut self, before: &State) -> State {
        let (mut random, mut state) = (self.random.fork(), before.clone());
        let (how, waits) = (random.u8(..8), random.bool());
        let memory = (how < 4).then(|| bytes_of(self.region));
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let work = |section: &Section<'_>| {
                self.change(section, &mut random, &mut state);
                match how {
                    0 => Err(section.abort()),
                    1 => panic!("on purpose"),
                    2 => {
                        let _ = section.abort();
                        Ok(())
                    }
                    3 => self
                        .region
                        .atomic(|_| Err::<(), _>(Error::Invalid("inner".into()))),
                    _ => Ok(()),
                }
            };
            match waits {
                true => self.region.atomic(work),
                false => self.region.atomic_within(HOUR, work),
            }
        }));
        assert_eq!(matches!(outcome, Ok(Ok(()))), how >= 4);
        let Some(memory) = memory else { return state };
        let after = bytes_of(self.region);
        assert!(
            after[..memory.len()] == memory,
            "a section that failed left something behind"
        );
        assert!(after[memory.len()..].iter().all(|&byte| byte == 0));
        before.clone()
    }
}

/// The seed of this run, and its random numbers.
pub(super) fn seeded() -> (u64, fastrand::Rng) {
    let seed = twinpage_campaign::seed();
    (seed, fastrand::Rng::with_seed(seed))
}

/// Three lives of a region, that many sections long; each begins as the one before ended.
pub(super) fn lives(name: &str, open: &dyn Fn() -> Region, steps: usize, random: &mut fastrand::Rng) {
    let mut state = State::default();
    for life in 0..3 {
        let region = open();
        let mut script = Script {
            region: &region,
            words: region.shared("words").unwrap(),
            tree: region.shared("tree").unwrap(),
            random: random.fork(),
        };
        assert!(
            script.found() == state,
            "{name}, life {life}: another state after opening"
        );
        for _ in 0..steps / 3 {
            state = script.step(&state);
        }
        assert!(
            script.found() == state,
            "{name}, life {life}: another state in memory"
        );
        drop(script);
        assert!(region.check().unwrap().is_sound());
        // Closing the region would do it.
        let given = region.atomic(|section| Ok::<_, Error>(section.heap().give_back().map(drop)));
        given.unwrap().unwrap();
        let memory = bytes_of(&region);
        region.close().unwrap();
        // A region that grew for a section that failed is saved with its next commit.
        let found = bytes_of(&open());
        let differs = found
            .iter()
            .zip(&memory)
            .position(|(found, memory)| found != memory);
        assert_eq!(
            differs, None,
            "{name}, life {life}: the file has another state than memory had"
        );
        assert!(found.len() <= memory.len() && memory[found.len()..].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn random_sections_are_there_or_never_were() {
    let steps = twinpage_campaign::either(120, 3000);
    let (_, mut random) = seeded();
    for folder in folders() {
        for (name, options) in [
            ("as it suits", sections()),
            ("dual page", sections().scheme(SchemeKind::DualPage)),
            ("packed", sections().scheme(SchemeKind::Packed)),
        ] {
            let path = folder.path().join(name);
            let open = || when_free(|| options.clone().open(&path));
            lives(name, &open, steps, &mut random);
        }
    }
}
