//! Serialized as `std`'s collections, and back through a seed with a heap.

use serde::de::DeserializeSeed;
use serde::de::value::{BytesDeserializer, Error};
use serde::{Deserialize, Serialize};
use std::marker::PhantomData;
use std::num::{NonZeroI8, Saturating, Wrapping};
use twinpage::collections::{BTreeMap, BTreeSet, BinaryHeap, Box, HashMap, HashSet, String, Vec, VecDeque};
use twinpage::window::Window;
use twinpage::{Heap, Persist};

#[derive(Persist, Serialize, PartialEq, Debug)]
#[persist(deserialize)]
struct All<'r> {
    names: Vec<'r, String<'r>>,
    ages: HashMap<'r, u64, Box<'r, u32>>,
    seen: HashSet<'r, u8>,
    tree: BTreeMap<'r, String<'r>, Vec<'r, Option<bool>>>,
    sorted: BTreeSet<'r, i32>,
    ring: VecDeque<'r, (u8, char)>,
    state: State,
    last: Option<String<'r>>,
    sides: [u16; 2],
}

/// Nothing of it is on a heap.
#[derive(Persist, Serialize, Deserialize, PartialEq, Debug)]
#[persist(deserialize)]
#[repr(u8)]
enum State {
    Open,
    Paid { amount: u32 },
}

#[derive(Serialize, Deserialize, PartialEq, Debug)]
struct OfStd {
    names: std::vec::Vec<std::string::String>,
    ages: std::collections::HashMap<u64, u32>,
    seen: std::collections::HashSet<u8>,
    tree: std::collections::BTreeMap<std::string::String, std::vec::Vec<Option<bool>>>,
    sorted: std::collections::BTreeSet<i32>,
    ring: std::collections::VecDeque<(u8, char)>,
    state: State,
    #[serde(default)]
    last: Option<std::string::String>,
    sides: [u16; 2],
}

const TEXT: &str = r#"{"names":["Ada","Grace"],"ages":{"7":1,"9":2},"seen":[1,2],
    "tree":{"a":[true,null],"b":[]},"sorted":[3,1,2],"ring":[[1,"x"],[2,"ß"]],"unknown":[{}],
    "state":{"Paid":{"amount":5}},"sides":[1,2]}"#;

#[test]
fn as_std_there_and_back() {
    let window = Window::volatile().unwrap();
    // SAFETY: nothing of a region or of another heap is in sight.
    let heap = unsafe { Heap::create(&window, 1) }.unwrap();
    let read = |text: &str| {
        heap.seed::<All>()
            .deserialize(&mut serde_json::Deserializer::from_str(text))
    };
    {
        let all = read(TEXT).unwrap();
        assert_eq!(all.names, ["Ada", "Grace"]);
        assert!(all.sorted.iter().eq(&[1, 2, 3]));
        let text = serde_json::to_string(&all).unwrap();
        let of_std: OfStd = serde_json::from_str(&text).unwrap();
        assert_eq!(of_std, serde_json::from_str(TEXT).unwrap());
        assert_eq!(read(&serde_json::to_string(&of_std).unwrap()).unwrap(), all);
        assert_eq!((&all.state, &all.last), (&State::Paid { amount: 5 }, &None));
        assert!(read(r#"{"names":[1]}"#).is_err());
        let told = |text: &str| read(text).unwrap_err().to_string();
        assert!(told(r#"{"names":[]}"#).contains("missing field `ages`"));
        assert!(told(r#"{"names":[],"names":[]}"#).contains("duplicate field `names`"));
        assert!(told(&TEXT.replace("[1,2]}", "[1]}")).contains("an array of 2"));
    }
    assert_eq!(heap.stats().used_blocks, 0);
}

/// The rest of what a region holds and `serde` knows.
#[derive(Persist, Serialize)]
#[persist(deserialize)]
struct Rest<'r> {
    queue: BinaryHeap<'r, u8>,
    slice: Box<'r, [String<'r>]>,
    text: Box<'r, str>,
    long: (u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, String<'r>),
    number: NonZeroI8,
    around: (Wrapping<u8>, Saturating<Option<Box<'r, u8>>>),
    nothing: PhantomData<u8>,
}

#[test]
fn whatever_serde_knows_goes_there_and_back() {
    const TEXT: &str = r#"{"queue":[3],"slice":["a","b"],"text":"ß","long":[1,2,3,4,5,6,7,8,9,10,11,"z"],
        "number":-1,"around":[4,5],"nothing":null}"#;
    let window = Window::volatile().unwrap();
    // SAFETY: nothing of a region or of another heap is in sight.
    let heap = unsafe { Heap::create(&window, 1) }.unwrap();
    let read = |text: &str| {
        heap.seed::<Rest>()
            .deserialize(&mut serde_json::Deserializer::from_str(text))
    };
    {
        let same = serde_json::to_value(read(TEXT).unwrap()).unwrap();
        assert_eq!(same, serde_json::from_str::<serde_json::Value>(TEXT).unwrap());
        assert_eq!(
            read(&TEXT.replace("[3]", "[1,3,2]")).unwrap().queue.pop(),
            Some(3)
        );
        assert!(read(&TEXT.replace("-1", "0")).is_err());
        let bytes = |bytes| {
            heap.seed::<String>()
                .deserialize(BytesDeserializer::<Error>::new(bytes))
        };
        assert_eq!(bytes("ß".as_bytes()).unwrap(), "ß");
        assert!(bytes(b"\xff").is_err());
    }
    assert_eq!(heap.stats().used_blocks, 0);
}
