//! The parts of Rust's own libraries that a body may use and stay deferrable.
//!
//! * A function is listed when its result and its effects depend on its arguments only, today and at every replay.
//! * Everything that is not listed is taken for impure.
//! * `f64::sin` and its like are listed. They are the system's: a replay on another system can differ in the last
//!   digit.

/// Modules of `std` and what calling into them means. Of these nothing may be used.
const IMPURE_MODULES: [(&str, &str); 13] = [
    ("fs", "reads or writes files"),
    ("io", "does input or output"),
    ("net", "talks to the network"),
    ("env", "asks for the environment of the process"),
    ("process", "starts or ends processes"),
    ("thread", "uses threads"),
    ("time", "asks for the time"),
    ("sync", "uses what threads share"),
    ("cell", "changes behind a shared reference"),
    ("os", "asks the operating system"),
    ("random", "is random"),
    ("backtrace", "looks at the stack"),
    ("alloc", "uses raw memory"),
];

/// Modules of `core`, `alloc` and `std` of which everything may be used, except the types below.
const PURE_MODULES: &str = "
    array ascii borrow boxed char clone cmp collections convert default f32 f64 fmt iter marker mem
    num ops option result slice str string vec hash primitive
";

/// Types that are not for an object, and why.
const IMPURE_TYPES: [(&str, &str); 27] = [
    ("Cell", "changes behind a shared reference"),
    ("RefCell", "changes behind a shared reference"),
    ("UnsafeCell", "changes behind a shared reference"),
    ("OnceCell", "changes behind a shared reference"),
    ("LazyCell", "changes behind a shared reference"),
    ("Mutex", "is a lock"),
    ("RwLock", "is a lock"),
    ("Condvar", "is for waiting"),
    ("Barrier", "is for waiting"),
    ("Once", "is shared by threads"),
    ("OnceLock", "is shared by threads"),
    ("LazyLock", "is shared by threads"),
    ("Rc", "is shared by its owners"),
    ("Arc", "is shared by its owners"),
    ("Weak", "is shared by its owners"),
    ("JoinHandle", "is a thread"),
    ("Sender", "is a channel"),
    ("Receiver", "is a channel"),
    ("SyncSender", "is a channel"),
    ("File", "is a file"),
    ("TcpStream", "is a connection"),
    ("TcpListener", "is a connection"),
    ("UdpSocket", "is a connection"),
    ("Instant", "is a time of a clock"),
    ("SystemTime", "is a time of a clock"),
    (
        "RandomState",
        "is random, so the order of a replay would be another",
    ),
    ("DefaultHasher", "may differ in another build"),
];

/// Paths of which a module above is part, and that are pure or not in spite of it.
const EXCEPTIONS: [(&str, Option<&str>); 7] = [
    ("std::collections::HashMap", Some(RANDOM_ORDER)),
    ("std::collections::HashSet", Some(RANDOM_ORDER)),
    ("std::collections::hash_map", Some(RANDOM_ORDER)),
    ("std::collections::hash_set", Some(RANDOM_ORDER)),
    ("std::time::Duration", None),
    ("std::sync::atomic::Ordering", None),
    ("std::hash::RandomState", Some("is random")),
];

const RANDOM_ORDER: &str =
    "has another order of its entries at every replay (the library's collections have not)";

/// Types in scope everywhere, whose associated functions are all pure.
const PURE_TYPES: &str = "
    bool char str u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 Option Result Vec
    String Box VecDeque BTreeMap BTreeSet BinaryHeap Duration Wrapping Reverse
";

/// Traits of the library, called by their name: `Default::default()`.
const PURE_TRAITS: &str = "
    Add Clone Default Eq Extend From FromIterator Hash Into IntoIterator Iterator Ord PartialEq
    PartialOrd ToOwned ToString
";

/// Free functions in scope everywhere.
const PURE_FUNCTIONS: &str = "
    drop size_of
";

/// Macros whose arguments are expressions, and that do nothing else.
const PURE_MACROS: &str = "
    assert assert_eq assert_ne concat debug_assert debug_assert_eq debug_assert_ne format panic
    stringify todo unimplemented unreachable vec write writeln matches
";

/// Macros that write to the program's output.
const PRINTING_MACROS: &str = "
    dbg eprint eprintln print println
";

/// Methods of the numbers, text, slices, options, iterators and collections of `core`, `alloc` and the library.
const PURE_METHODS: &str = "
    abs abs_diff acos asin atan atan2 cbrt ceil checked_add checked_div checked_mul checked_neg
    checked_pow checked_rem checked_sub clamp copysign cos cosh count_ones count_zeros div_ceil
    div_euclid exp exp2 floor fract hypot ilog10 ilog2 is_finite is_infinite is_multiple_of is_nan
    is_negative is_positive is_power_of_two isqrt leading_ones leading_zeros ln ln_1p log log10 log2
    max midpoint min mul_add next_multiple_of next_power_of_two overflowing_add overflowing_mul
    overflowing_sub pow powf powi recip rem_euclid reverse_bits rotate_left rotate_right round
    saturating_add saturating_mul saturating_pow saturating_sub signum sin sin_cos sinh sqrt
    swap_bytes tan tanh to_be_bytes to_bits to_degrees to_le_bytes to_radians total_cmp
    trailing_ones trailing_zeros trunc unsigned_abs wrapping_add wrapping_mul wrapping_neg
    wrapping_shl wrapping_shr wrapping_sub
    as_bytes as_mut_str as_str bytes char_indices chars eq_ignore_ascii_case find into_bytes
    into_string is_alphabetic is_alphanumeric is_ascii is_ascii_digit is_char_boundary is_control
    is_digit is_lowercase is_numeric is_uppercase is_whitespace len_utf8 lines make_ascii_lowercase
    make_ascii_uppercase matches parse push_str repeat replace replace_range replacen rfind split
    split_ascii_whitespace split_once split_terminator split_whitespace splitn strip_prefix
    strip_suffix to_ascii_lowercase to_ascii_uppercase to_digit to_lowercase to_owned to_string
    to_uppercase trim trim_end trim_start write_char write_str
    and and_then as_deref as_deref_mut as_mut as_ref borrow borrow_mut clone cloned cmp copied eq
    err expect expect_err filter flatten ge get_or_insert get_or_insert_with gt insert inspect into
    is_err is_none is_none_or is_ok is_ok_and is_some is_some_and le lt map map_err map_or
    map_or_else ne ok ok_or ok_or_else or or_else partial_cmp take take_if then then_some transpose
    try_from try_into unwrap unwrap_err unwrap_or unwrap_or_default unwrap_or_else unzip xor zip
    all any by_ref chain collect count cycle enumerate filter_map find_map flat_map fold for_each
    fuse into_iter is_sorted iter iter_mut last map_while max_by max_by_key min_by min_by_key next
    next_back next_if nth partition peek peekable position product reduce rev rposition scan skip
    skip_while step_by sum take_while try_fold try_for_each
    append as_mut_slice as_slice back back_mut binary_search binary_search_by binary_search_by_key
    chunk_by chunks chunks_exact chunks_exact_mut chunks_mut clear concat contains copy_from_slice
    copy_within dedup dedup_by dedup_by_key drain ends_with extend extend_from_slice fill fill_with
    first first_mut front front_mut get get_disjoint_mut get_mut insert_str into_boxed_slice
    into_sorted_vec into_vec is_empty join last_mut len make_contiguous partition_point peek_mut pop
    pop_back pop_front push push_back push_front range range_mut remove reserve resize resize_with
    retain retain_mut reverse select_nth_unstable shrink_to_fit sort sort_by
    sort_by_cached_key sort_by_key sort_unstable sort_unstable_by sort_unstable_by_key splice
    split_at split_at_mut split_first split_first_mut split_last split_off starts_with swap
    swap_remove to_vec truncate windows
    and_modify contains_key difference entry first_entry first_key_value get_key_value intersection
    into_keys into_values is_disjoint is_subset is_superset key keys last_key_value or_default
    or_insert or_insert_with pop_first pop_last remove_entry symmetric_difference union values
    values_mut
    as_micros as_millis as_nanos as_secs as_secs_f64
";

/// Methods that are known not to be.
const IMPURE_METHODS: [(&str, &str); 3] = [
    ("lock try_lock", "waits for other threads"),
    ("elapsed duration_since", "asks for the time"),
    (
        "fetch_add fetch_sub fetch_and fetch_or fetch_xor fetch_max fetch_min fetch_update compare_exchange \
         compare_exchange_weak",
        "changes what threads share",
    ),
];

/// What a path in Rust's own libraries or ours is.
pub(crate) enum Known {
    /// It may be used.
    Pure,
    /// It makes a method instant: what it does.
    Impure(&'static str),
    /// It is in no list.
    Unlisted,
}

/// What a path means whose first part is a crate: `std::fs::read`.
pub(crate) fn path(segments: &[String]) -> Known {
    let (first, rest) = segments.split_first().expect("a path has a part");
    let first = match first.as_str() {
        "core" | "alloc" => "std", // which shows what they have
        other => other,
    };
    let parts: Vec<&str> = [first]
        .into_iter()
        .chain(rest.iter().map(String::as_str))
        .collect();
    let text = parts.join("::");
    if let Some((_, why)) = EXCEPTIONS.iter().find(|(path, _)| is_in(&text, path)) {
        return why.map_or(Known::Pure, Known::Impure);
    }
    if let Some(why) = parts.iter().find_map(|part| impure_type(part)) {
        return Known::Impure(why);
    }
    match parts[..] {
        ["std", module, ..] => module_of_std(module),
        ["twinpage", "collections", ..] => Known::Pure,
        _ => Known::Unlisted,
    }
}

/// Whether a list of words has this one.
fn lists(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|listed| listed == word)
}

fn module_of_std(module: &str) -> Known {
    match IMPURE_MODULES.iter().find(|(name, _)| *name == module) {
        Some((_, why)) => Known::Impure(why),
        None if lists(PURE_MODULES, module) || lists(PURE_TYPES, module) => Known::Pure,
        None => Known::Unlisted,
    }
}

fn is_in(path: &str, module: &str) -> bool {
    path.strip_prefix(module)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Whether a path begins with a crate that is known here.
pub(crate) fn is_known_crate(first: &str) -> bool {
    matches!(first, "std" | "core" | "alloc" | "twinpage")
}

/// Why a type of that name is not for an object.
pub(crate) fn impure_type(name: &str) -> Option<&'static str> {
    let atomic = name.starts_with("Atomic") && name.len() > "Atomic".len();
    let found = IMPURE_TYPES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, why)| *why);
    found.or(atomic.then_some("is shared by threads"))
}

/// Whether every function of a type or trait of that name is pure.
pub(crate) fn is_pure_owner(name: &str) -> bool {
    lists(PURE_TYPES, name) || lists(PURE_TRAITS, name)
}

pub(crate) fn is_pure_function(name: &str) -> bool {
    lists(PURE_FUNCTIONS, name)
}

pub(crate) fn is_pure_method(name: &str) -> bool {
    lists(PURE_METHODS, name)
}

/// Why a method of that name makes instant, wherever it is one of Rust's own libraries.
pub(crate) fn impure_method(name: &str) -> Option<&'static str> {
    let found = IMPURE_METHODS.iter().find(|(names, _)| lists(names, name));
    found.map(|(_, why)| *why)
}

pub(crate) fn is_pure_macro(name: &str) -> bool {
    lists(PURE_MACROS, name)
}

pub(crate) fn is_printing_macro(name: &str) -> bool {
    lists(PRINTING_MACROS, name)
}
