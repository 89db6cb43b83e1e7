//! What the derive accepts, what it refuses and what it says then, and what it describes.

use twinpage::Persist;
use twinpage::persist::{Description, Kind};

#[test]
fn what_cannot_live_in_a_region_is_refused_with_a_reason() {
    // The words of an error are the compiler's: those kept here are of the one that builds the project.
    let compiler = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let version = std::process::Command::new(compiler).arg("--version").output();
    let version = version.map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
    if !version
        .as_ref()
        .is_ok_and(|version| version.starts_with(OUR_COMPILER))
    {
        eprintln!("SKIPPED: errors of the derive: they are those of {OUR_COMPILER}, this is {version:?}");
        return;
    }
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}

/// As in `rust-toolchain.toml`.
const OUR_COMPILER: &str = "rustc 1.95.";

#[derive(Persist)]
struct Unit;

#[derive(Persist)]
struct Order {
    id: u64,
    side: Side,
    price: Option<u32>,
    tags: [u8; 3],
    pair: (u8, u16),
}

#[derive(Persist, Clone, Copy)]
enum Side {
    Buy = 1,
    Sell = 200,
}

#[derive(Persist)]
#[repr(u8)]
#[allow(dead_code)] // only described
enum Shape {
    Dot,
    Circle(f64) = 7,
    Box { wide: u16, high: u32 },
}

#[derive(Persist)]
struct Pair<T, const N: usize>(T, [T; N]);

fn kind<T: Persist>() -> Kind {
    Description::of::<T>().get(0).kind.clone()
}

#[test]
fn a_structure_is_described_as_the_compiler_lays_it_out() {
    let order = Order {
        id: 1,
        side: Side::Sell,
        price: Some(3),
        tags: [1, 2, 3],
        pair: (1, 2),
    };
    let description = Description::of::<Order>();
    let Kind::Struct(fields) = &description.get(0).kind else {
        panic!("{description}")
    };
    let at = |name: &str| fields.iter().find(|f| f.name == name).map(|f| f.at as usize);
    let start = (&raw const order).addr();
    assert_eq!(at("id"), Some((&raw const order.id).addr() - start));
    assert_eq!(at("side"), Some((&raw const order.side).addr() - start));
    assert_eq!(at("price"), Some((&raw const order.price).addr() - start));
    assert_eq!(at("tags"), Some((&raw const order.tags).addr() - start));
    assert_eq!(at("pair"), Some((&raw const order.pair).addr() - start));
    assert_eq!(kind::<Unit>(), Kind::Struct(vec![]));
    assert_eq!(Description::of::<Pair<u8, 3>>().get(0).name, "Pair<u8, 3>");
    assert!(matches!(order.side, Side::Sell) && !matches!(order.side, Side::Buy));
}

#[test]
fn the_fields_of_a_variant_are_where_they_are() {
    let Kind::Enum { tag_bytes, variants } = kind::<Shape>() else {
        panic!()
    };
    assert_eq!(tag_bytes, 1);
    assert_eq!(variants.iter().map(|v| v.tag).collect::<Vec<_>>(), [0, 7, 8]);
    let shape = Shape::Box { wide: 1, high: 2 };
    let Shape::Box { wide, high } = &shape else {
        panic!()
    };
    let start = (&raw const shape).addr();
    assert_eq!(
        variants[2].fields[0].at as usize,
        std::ptr::from_ref(wide).addr() - start
    );
    assert_eq!(
        variants[2].fields[1].at as usize,
        std::ptr::from_ref(high).addr() - start
    );
    let circle = Shape::Circle(1.0);
    let Shape::Circle(radius) = &circle else { panic!() };
    assert_eq!(
        variants[1].fields[0].at as usize,
        std::ptr::from_ref(radius).addr() - (&raw const circle).addr()
    );
    let Kind::Enum {
        tag_bytes: 1,
        variants,
    } = kind::<Side>()
    else {
        panic!()
    };
    assert_eq!(variants.iter().map(|v| v.tag).collect::<Vec<_>>(), [1, 200]);
}

#[test]
fn a_description_is_kept_as_text_and_read_again() {
    for description in [
        Description::of::<Order>(),
        Description::of::<Shape>(),
        Description::of::<Option<Option<bool>>>(),
        Description::of::<[(u64, char); 5]>(),
    ] {
        let text = description.text();
        let read = Description::parse(&text).unwrap();
        assert_eq!(read, description);
        assert_eq!(read.fingerprint(), description.fingerprint());
    }
    assert_ne!(
        Description::of::<Pair<u8, 3>>().fingerprint(),
        Description::of::<Pair<u8, 4>>().fingerprint()
    );
}

#[test]
fn a_description_that_cannot_be_is_refused() {
    let text = Description::of::<Order>().text();
    for (from, to) in [
        ("\"at\":8", "\"at\":99999"),
        ("\"of\":1", "\"of\":77"),
        ("\"of\":1", "\"of\":0"),
        ("\"bytes\":8", "\"bytes\":18446744073709551615"),
        ("\"align\":8", "\"align\":3"),
        ("{\"types\":[", "{\"types\":[]"),
    ] {
        assert!(text.contains(from), "{text}");
        let bad = text.replacen(from, to, 1);
        assert!(Description::parse(&bad).is_err(), "{from} -> {to}");
    }
    assert!(Description::parse("{\"types\":[]}").is_err());
    assert!(Description::parse(&"[".repeat(100_000)).is_err());
    for end in 0..text.len() {
        assert!(Description::parse(&text[..end]).is_err());
    }
}

#[derive(Persist)]
#[persist(name = "Price")]
struct PriceV1(u32);

#[derive(Persist)]
#[persist(version = 2, from = PriceV1)]
struct Price {
    cents: u64,
}

impl From<PriceV1> for Price {
    fn from(old: PriceV1) -> Price {
        Price {
            cents: u64::from(old.0) * 100,
        }
    }
}

#[derive(Persist)]
#[persist(name = "Note")]
struct NoteV1<'r, T>(twinpage::collections::String<'r>, T);

/// With a brand and a parameter; the comma between them ends no option.
#[derive(Persist)]
#[persist(name = "Note", version = 2, from = NoteV1<'r, (T, u8)>, with = NoteV2::tagged)]
struct NoteV2<'r, T>(twinpage::collections::String<'r>, T);

/// The same in quotation marks, as it was first written.
#[derive(Persist)]
#[persist(from = "NoteV1<'r, (T, u8)>", with = NoteV3::tagged, version = 3, name = "Note")]
struct NoteV3<'r, T>(twinpage::collections::String<'r>, T);

impl<'r, T> NoteV2<'r, T> {
    fn tagged(NoteV1(text, (tag, _)): NoteV1<'r, (T, u8)>, _: twinpage::Heap<'r>) -> Self {
        NoteV2(text, tag)
    }
}

impl<'r, T> NoteV3<'r, T> {
    fn tagged(NoteV1(text, (tag, _)): NoteV1<'r, (T, u8)>, _: twinpage::Heap<'r>) -> Self {
        NoteV3(text, tag)
    }
}

#[test]
fn an_earlier_type_may_have_a_brand() {
    let window = twinpage::window::Window::volatile().unwrap();
    // SAFETY: nothing of a region or of another heap is in sight.
    let heap = unsafe { twinpage::Heap::create(&window, 1) }.unwrap();
    let old = || {
        NoteV1(
            twinpage::collections::String::from_in("note", heap),
            (7_u32, 9_u8),
        )
    };
    let NoteV2(text, tag) = NoteV2::<u32>::migrate(old(), heap);
    assert_eq!((text.as_str(), tag), ("note", 7));
    let NoteV3(text, tag) = NoteV3::<u32>::migrate(old(), heap);
    assert_eq!((text.as_str(), tag), ("note", 7));
}

#[test]
fn names_and_versions_are_recorded() {
    let (old, new) = (Description::of::<PriceV1>(), Description::of::<Price>());
    assert_eq!((old.get(0).name.as_str(), old.get(0).version), ("Price", 1));
    assert_eq!((new.get(0).name.as_str(), new.get(0).version), ("Price", 2));
    assert_eq!(
        new.to_string(),
        "Price (version 2): 8 bytes\n    at   0: cents, u64 (8 bytes)\n"
    );
    let window = twinpage::window::Window::volatile().unwrap();
    // SAFETY: nothing of a region or of another heap is in sight.
    let heap = unsafe { twinpage::Heap::create(&window, 1) }.unwrap();
    let moved = <Option<[Price; 2]>>::migrate(Some([PriceV1(3), PriceV1(4)]), heap);
    assert!(matches!(
        moved,
        Some([Price { cents: 300 }, Price { cents: 400 }])
    ));
}

#[derive(Persist)]
struct Bounded<'r, T, U>
where
    T: Clone + Into<Option<U>>,
    Option<U>: PartialEq,
    twinpage::collections::Vec<'r, T>: Sized,
    u64: Copy,
{
    all: twinpage::collections::Vec<'r, T>,
    one: U,
}

#[derive(Persist)]
struct Inline<T: Clone>(T);

#[derive(Persist)]
struct Where<T>(T)
where
    T: Clone;

#[test]
fn bounds_may_stand_in_a_where_clause() {
    assert_eq!(size_of::<Inline<u32>>(), size_of::<Where<u32>>());
    let fields = |kind| match kind {
        Kind::Struct(fields) => fields.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(fields(kind::<Where<twinpage::collections::String>>()), 1);
    assert_eq!(fields(kind::<Bounded<u64, u64>>()), 2);
}
