//! A flush of a device takes milliseconds: who reads does not wait for one, nor does a section that fails.

use super::{HOUR, add, bytes_of, run, sections};
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use twinpage::collections::Vec as List;
use twinpage::{Error, Region, SchemeKind};
use twinpage_core::crash::Image;
use twinpage_core::{Flush, Geometry, Medium, Offset, Result};
use twinpage_os::faulty::{Call, Fault};

/// A device whose flushes wait until they are let go.
#[derive(Default)]
struct Device {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_held: bool,
    /// Flushes that wait.
    waiting: u64,
    fails: bool,
}

impl Device {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    fn wait_until(&self, is_so: impl Fn(&State) -> bool) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| !is_so(state)).unwrap());
    }
}

impl Flush for Device {
    fn flush(&self) -> io::Result<()> {
        self.change(|state| state.waiting += 1);
        self.wait_until(|state| !state.is_held);
        self.change(|state| state.waiting -= 1);
        match self.state.lock().unwrap().fails {
            true => Err(io::Error::other("the device is gone")),
            false => Ok(()),
        }
    }
}

/// A medium on it. What it holds outlives it.
#[derive(Clone)]
struct OnDevice {
    image: Arc<Mutex<Image>>,
    device: Arc<Device>,
}

impl OnDevice {
    fn new() -> OnDevice {
        OnDevice {
            image: Arc::new(Mutex::new(Image::new(512))),
            device: Arc::default(),
        }
    }

    /// While `commit` waits for a flush, `work` is done to its end.
    fn meanwhile(&self, commit: impl FnOnce() + Send, work: impl FnOnce()) {
        self.device.change(|state| state.is_held = true);
        std::thread::scope(|scope| {
            scope.spawn(commit);
            self.device.wait_until(|state| state.waiting > 0);
            work();
            self.device.change(|state| state.is_held = false);
        });
    }
}

impl Medium for OnDevice {
    fn len(&self) -> u64 {
        self.image.lock().unwrap().len()
    }
    fn grow(&mut self, len: u64) -> Result<()> {
        self.image.lock().unwrap().grow(len)
    }
    fn read(&self, at: Offset, into: &mut [u8]) -> Result<()> {
        self.image.lock().unwrap().read(at, into)
    }
    fn write(&mut self, at: Offset, bytes: &[u8]) -> Result<()> {
        self.image.lock().unwrap().write(at, bytes)
    }
    fn fence(&mut self) -> Result<()> {
        Ok(())
    }
    fn begin_fence(&mut self) -> Result<Option<Arc<dyn Flush>>> {
        Ok(Some(self.device.clone()))
    }
    fn atom(&self) -> usize {
        512
    }
}

const WORDS: usize = 1 << 20;

#[test]
fn a_section_is_undone_while_another_is_flushed() {
    for scheme in SchemeKind::PRODUCTS {
        let medium = OnDevice::new();
        let region = sections()
            .scheme(scheme)
            .open_on(medium.clone(), Geometry::DISK)
            .unwrap();
        let list = region.shared::<List<u64>>("list").unwrap();
        run(&region, |section| list.write(section).resize(WORDS, 1)).unwrap();
        let first = || run(&region, |section| list.write(section)[0] = 2).unwrap();
        medium.meanwhile(first, || {
            let before = bytes_of(&region);
            let failed: std::result::Result<(), Error> = region.atomic(|section| {
                let list = list.write(section);
                // On the page that is on its way, and far from it.
                (list[0], list[1], list[WORDS / 2]) = (3, 3, 3);
                list.truncate(WORDS - 1);
                Err(section.abort())
            });
            assert!(matches!(failed, Err(Error::Aborted)));
            assert!(bytes_of(&region) == before, "{scheme}");
            // The next one runs as well, and is durable after the first.
            let next = region.atomic_within(HOUR, |section| {
                list.write(section)[7] = 7;
                Ok::<_, Error>(())
            });
            next.unwrap();
        });
        region.durable().unwrap();
        region.read(|view| {
            let list = list.read(view);
            assert_eq!((list[0], list[1], list[7], list[WORDS / 2]), (2, 1, 7, 1));
        });
        assert!(region.check().unwrap().is_sound());
    }
}

#[test]
fn a_page_is_loaded_while_an_epoch_is_flushed() {
    for scheme in SchemeKind::PRODUCTS {
        let medium = OnDevice::new();
        let open = || {
            let options = Region::options().scheme(scheme);
            options.open_on(medium.clone(), Geometry::DISK).unwrap()
        };
        let region = open();
        let mut list = region.root::<List<u64>>("list").unwrap();
        region.update(|u| list.get_mut(u).extend(0..WORDS as u64));
        region.durable().unwrap();
        drop(list);
        drop(region);
        let region = open();
        let list = region.root::<List<u64>>("list").unwrap();
        let mut count = region.root::<u64>("count").unwrap();
        let before = region.statistics().paging;
        let commit = || {
            region.update(|u| *count.get_mut(u) += 1);
            region.durable().unwrap();
        };
        medium.meanwhile(commit, || {
            region.read(|view| {
                let list = list.get(view);
                (0..WORDS)
                    .step_by(512)
                    .for_each(|at| assert_eq!(list[at], at as u64));
            });
        });
        let paging = region.statistics().paging;
        assert!(
            paging.loaded_at_open || paging.loaded_pages > before.loaded_pages + 1000,
            "{scheme}: {before:?}, {paging:?}"
        );
    }
}

/// The wait itself fails: that poisons, as any failed flush does.
#[test]
fn a_failed_flush_poisons_and_is_told_by_its_section() {
    for scheme in SchemeKind::PRODUCTS {
        let medium = OnDevice::new();
        let options = sections().scheme(scheme);
        let region = options.open_on(medium.clone(), Geometry::DISK).unwrap();
        let count = region.shared::<u64>("count").unwrap();
        assert_eq!(add(&region, &count).unwrap(), 1);
        medium.device.change(|state| state.fails = true);
        let told = add(&region, &count).unwrap_err().to_string();
        assert!(told.contains("the device is gone"), "{scheme}: {told}");
        medium.device.change(|state| state.fails = false);
        let later = add(&region, &count).unwrap_err().to_string();
        assert!(
            later.contains("nothing is durable") && later.contains("the device is gone"),
            "{scheme}: {later}"
        );
    }
    for scheme in SchemeKind::PRODUCTS {
        for call in [Call::Write, Call::Fence] {
            let (region, faults) = super::faulty(scheme);
            let count = region.shared::<u64>("count").unwrap();
            assert_eq!(add(&region, &count).unwrap(), 1);
            faults.plan(call, 0, Fault::HalfDone);
            add(&region, &count).unwrap_err();
            assert!(faults.struck() > 0, "{scheme}, {call:?}");
            let later = add(&region, &count).unwrap_err().to_string();
            assert!(
                later.contains("nothing is durable"),
                "{scheme}, {call:?}: {later}"
            );
            assert!(region.durable().is_err() && region.checkpoint().is_err());
        }
    }
}
