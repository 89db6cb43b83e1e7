//! Bodies that use what threads or owners share.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

struct Shared {
    count: AtomicU64,
    cell: RefCell<u64>,
    lock: Mutex<Vec<u64>>,
    many: Arc<u64>,
    inner: Inner,
    plain: u64,
    logger: Logger,
}

struct Inner {
    hidden: Option<Box<std::cell::Cell<u64>>>,
    value: u64,
}

impl Shared {
    //~ instant: the field `count`: `AtomicU64` is shared by threads
    fn atomics(&mut self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    //~ instant: the field `count`
    fn swaps(&mut self) {
        self.count.swap(1, Ordering::Relaxed);
    }

    //~ instant: the field `cell`: `RefCell` changes behind
    fn cells(&self) {
        self.cell.replace(3);
    }

    //~ instant: the field `lock`: `Mutex` is a lock
    fn locks(&mut self) {
        self.lock.get_mut().unwrap().push(1);
    }

    //~ instant: the field `many`
    fn owners(&mut self) {
        self.plain = *self.many;
    }

    //~ instant: the field `hidden`: `std::cell::Cell` changes behind
    fn deep(&mut self) {
        if let Some(cell) = &self.inner.hidden {
            cell.set(1);
        }
    }

    //~ instant: the field `logger`: the source of `Logger` is not given
    fn unseen(&mut self) {
        self.logger.push(self.plain);
    }

    //~ instant: the source of `Logger` is not given
    fn unseen_argument(&mut self, mut logger: Logger) {
        logger.push(self.plain);
    }

    //~ deferrable
    fn beside(&mut self) {
        self.inner.value += 1;
        self.plain = 4;
    }

    //~ instant: `Mutex` uses what threads share | `Mutex` is a lock
    fn given(&mut self, lock: Mutex<u64>) {
        self.plain = lock.into_inner().unwrap();
    }

    //~ instant: is a channel
    fn channel(&mut self, out: Sender<u64>) {
        let _ = out.send(self.plain);
    }

    //~ instant: changes behind a shared reference
    fn made(&mut self) {
        let cell = RefCell::new(3);
        *cell.borrow_mut() = 4;
    }

    //~ instant: uses what threads share
    fn fenced(&mut self) {
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    //~ instant: is shared by its owners
    fn counted(&mut self) {
        self.plain = Rc::new(4).wrapping_add(1);
    }
}
