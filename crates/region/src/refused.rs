//! What may not live in a region, and what to use instead.
//!
//! * Each type here "is" `Persist` on a condition that nothing meets, so that the compiler's error is the
//!   condition's message instead of a mere "not implemented", also behind an alias.
//! * The condition is a trait that regions do have of the types to use instead: the compiler names those then, and not the
//!   refused type as one that "implements `Persist`".

use crate::collections;
use crate::heap::Heap;
use crate::persist::{Kind, Name, Persist, Types};
use crate::shared::Shared;

/// What would have to take it.
#[doc(hidden)]
pub struct AnyRegion;

macro_rules! refuse {
    ($reason:ident, $message:literal, $label:literal, $note:literal: $([$($generics:tt)*] $type:ty),+ $(,)?) => {
        /// A condition that none of the types below meets.
        #[doc(hidden)]
        #[diagnostic::on_unimplemented(message = $message, label = $label, note = $note)]
        pub trait $reason<T> {}
        $(
            // SAFETY: the condition is not met, so this is no implementation.
            #[doc(hidden)]
            unsafe impl<$($generics)*> Persist for $type
            where
                for<'never> AnyRegion: $reason<$type>, // `for`: so a type without parameters may fail to meet it
            {
                type In<'r> = Self;
                type Previous = Self;
                fn name() -> Name {
                    unreachable!("its condition cannot be met")
                }
                fn layout(_: &mut Types) -> Kind {
                    unreachable!("its condition cannot be met")
                }
                fn migrate<'r>(old: Self, _: Heap<'r>) -> Self {
                    old
                }
            }
        )+
    };
}

refuse!(Value,
    "a reference (`{T}`) cannot live in a region",
    "what it refers to is gone after a restart",
    "own the value (`twinpage::collections::Box`, `String`, `Vec`), or keep a key or an index":
    [T: ?Sized + 'static] &'static T, [T: ?Sized + 'static] &'static mut T,
    [T: ?Sized + ToOwned + 'static] std::borrow::Cow<'static, T>);
impl Value<collections::String<'_>> for AnyRegion {}
impl<T> Value<collections::Vec<'_, T>> for AnyRegion {}
impl<T> Value<collections::Box<'_, T>> for AnyRegion {}

refuse!(Pointee,
    "a raw pointer (`{T}`) cannot live in a region",
    "nothing says that what it points to is there after a restart",
    "own the value (`twinpage::collections::Box`), or keep an index":
    [T: ?Sized + 'static] *const T, [T: ?Sized + 'static] *mut T, [T: ?Sized + 'static] std::ptr::NonNull<T>,
    [T: 'static] std::sync::atomic::AtomicPtr<T>);
impl<T> Pointee<collections::Box<'_, T>> for AnyRegion {}

refuse!(Choice,
    "a function pointer (`{T}`) cannot live in a region",
    "the next build or the next start has the function elsewhere",
    "keep an enum that says which function to call":
    [R: 'static] fn() -> R, [A: 'static, R: 'static] fn(A) -> R,
    [A: 'static, B: 'static, R: 'static] fn(A, B) -> R,
    [A: 'static, B: 'static, C: 'static, R: 'static] fn(A, B, C) -> R,
    [A: 'static, B: 'static, C: 'static, D: 'static, R: 'static] fn(A, B, C, D) -> R,
    [A: 'static, B: 'static, C: 'static, D: 'static, E: 'static, R: 'static] fn(A, B, C, D, E) -> R,
    [A: 'static, B: 'static, C: 'static, D: 'static, E: 'static, F: 'static, R: 'static] fn(A, B, C, D, E, F) -> R);
impl Choice<u8> for AnyRegion {}

refuse!(Owned,
    "a counted reference (`{T}`) cannot live in a region",
    "it points to memory outside the region, and its count changes behind a shared reference",
    "let one place own the value (`twinpage::collections::Box`) and others keep its key or index":
    [T: ?Sized + 'static] std::rc::Rc<T>, [T: ?Sized + 'static] std::rc::Weak<T>,
    [T: ?Sized + 'static] std::sync::Arc<T>, [T: ?Sized + 'static] std::sync::Weak<T>);
impl<T> Owned<collections::Box<'_, T>> for AnyRegion {}

refuse!(Lock,
    "a lock (`{T}`) cannot live in a region",
    "after a crash no thread would be there to unlock it",
    "keep the data in the region and share its root, which has a lock outside: `twinpage::Shared<T>`":
    [T: 'static] std::sync::Mutex<T>, [T: 'static] std::sync::RwLock<T>,
    [] std::sync::Condvar, [] std::sync::Once, [] std::sync::Barrier,
    [T: 'static] std::sync::OnceLock<T>, [T: 'static] std::sync::LazyLock<T>);
impl<T: Persist> Lock<Shared<T>> for AnyRegion {}

refuse!(Plain,
    "`{T}` cannot live in a region: it changes behind a shared reference",
    "such a write would not be marked, and would be lost",
    "keep the plain value and change it through `&mut`":
    [T: 'static] std::cell::UnsafeCell<T>, [T: 'static] std::cell::Cell<T>,
    [T: 'static] std::cell::RefCell<T>, [T: 'static] std::cell::OnceCell<T>, [T: 'static] std::cell::LazyCell<T>,
    [] std::sync::atomic::AtomicBool,
    [] std::sync::atomic::AtomicU8, [] std::sync::atomic::AtomicU16, [] std::sync::atomic::AtomicU32,
    [] std::sync::atomic::AtomicU64, [] std::sync::atomic::AtomicUsize,
    [] std::sync::atomic::AtomicI8, [] std::sync::atomic::AtomicI16, [] std::sync::atomic::AtomicI32,
    [] std::sync::atomic::AtomicI64, [] std::sync::atomic::AtomicIsize);
impl Plain<u64> for AnyRegion {}

refuse!(Collection,
    "`{T}` of the standard library cannot live in a region",
    "its elements are on the program's own heap, which is gone after a restart",
    "use the type of the same name from `twinpage::collections`, made with `new_in(heap)`":
    [T: ?Sized + 'static] std::boxed::Box<T>, [T: 'static] std::vec::Vec<T>, [] std::string::String,
    [T: 'static] std::collections::VecDeque<T>, [T: 'static] std::collections::BinaryHeap<T>,
    [K: 'static, V: 'static, S: 'static] std::collections::HashMap<K, V, S>,
    [T: 'static, S: 'static] std::collections::HashSet<T, S>,
    [K: 'static, V: 'static] std::collections::BTreeMap<K, V>, [T: 'static] std::collections::BTreeSet<T>);
impl<T> Collection<collections::Box<'_, T>> for AnyRegion {}
impl<T> Collection<collections::Vec<'_, T>> for AnyRegion {}
impl Collection<collections::String<'_>> for AnyRegion {}
impl<T> Collection<collections::VecDeque<'_, T>> for AnyRegion {}
impl<K, V> Collection<collections::HashMap<'_, K, V>> for AnyRegion {}
impl<K, V> Collection<collections::BTreeMap<'_, K, V>> for AnyRegion {}

refuse!(Content,
    "`{T}` cannot live in a region: its contents are on the program's own heap",
    "gone after a restart",
    "use `twinpage::collections`: `Vec`, `String`, `VecDeque`":
    [T: 'static] std::collections::LinkedList<T>,
    [] std::path::PathBuf, [] std::ffi::OsString, [] std::ffi::CString);
impl<T> Content<collections::Vec<'_, T>> for AnyRegion {}
impl Content<collections::String<'_>> for AnyRegion {}
impl<T> Content<collections::VecDeque<'_, T>> for AnyRegion {}

refuse!(Address,
    "a handle of the system (`{T}`) cannot live in a region",
    "its number means nothing in the next process",
    "keep what is needed to open it again: a path, an address":
    [] std::fs::File, [] std::os::fd::OwnedFd, [] std::net::TcpStream, [] std::net::TcpListener,
    [] std::net::UdpSocket, [] std::os::unix::net::UnixStream, [] std::os::unix::net::UnixListener,
    [] std::os::unix::net::UnixDatagram,
    [] std::process::Child, [] std::thread::Thread, [T: 'static] std::thread::JoinHandle<T>,
    [T: 'static] std::sync::mpsc::Sender<T>, [T: 'static] std::sync::mpsc::Receiver<T>);
impl Address<collections::String<'_>> for AnyRegion {}

refuse!(Moment,
    "`{T}` cannot live in a region: std keeps its layout to itself",
    "its meaning ends with the process or the build",
    "keep a number: nanoseconds, or seconds since the epoch, as `u64`":
    [] std::time::Instant, [] std::time::SystemTime, [] std::time::Duration);
impl Moment<u64> for AnyRegion {}

refuse!(Parts,
    "`{T}` cannot live in a region: std keeps its layout to itself",
    "another build may lay it out otherwise",
    "keep its parts: in a tuple, or in a type of your own with `#[derive(Persist)]` (an enum with fields has \
     `#[repr(u8)]`)":
    [T: 'static, E: 'static] std::result::Result<T, E>, [] std::cmp::Ordering,
    [T: 'static] std::ops::Range<T>, [T: 'static] std::ops::RangeInclusive<T>, [T: 'static] std::ops::RangeFrom<T>,
    [T: 'static] std::ops::RangeTo<T>, [T: 'static] std::ops::RangeToInclusive<T>, [T: 'static] std::ops::Bound<T>,
    [] std::net::IpAddr, [] std::net::Ipv4Addr, [] std::net::Ipv6Addr,
    [] std::net::SocketAddr, [] std::net::SocketAddrV4, [] std::net::SocketAddrV6);
impl<A, B> Parts<(A, B)> for AnyRegion {}

refuse!(Known,
    "`{T}` cannot live in a region: it may hold no value yet",
    "bytes that mean nothing would be checked, and kept",
    "say whether there is one: `Option<T>`":
    [T: 'static] std::mem::MaybeUninit<T>);
impl<T> Known<Option<T>> for AnyRegion {}
