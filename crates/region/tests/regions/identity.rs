//! Types are told apart by crate, module, name and layout; one that was moved or renamed says what it was.

use std::path::PathBuf;
use twinpage::collections::{BTreeMap, HashMap, String, Vec, VecDeque};
use twinpage::{Empty, Error, Persist, Region, RootError};

struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Dir {
        Dir(tempfile::tempdir().unwrap())
    }
    fn open(&self) -> Region {
        Region::open(self.file()).unwrap()
    }
    fn file(&self) -> PathBuf {
        self.0.path().join("test.twin")
    }
}

mod bank {
    /// Its field is private: no other module makes one.
    #[derive(twinpage::Persist, PartialEq, Debug)]
    pub(super) struct Token(u64);
    impl Token {
        pub(crate) fn new(number: u64) -> Token {
            Token(number)
        }
    }
    #[derive(twinpage::Persist)]
    pub(super) struct Tagged<T> {
        pub(super) number: u64,
        pub(super) tag: std::marker::PhantomData<T>,
    }
}

mod forger {
    #[derive(twinpage::Persist)]
    pub(super) struct Token(pub(super) u64);
}

/// `bank::Token`, if it had been moved and renamed.
#[derive(twinpage::Persist, PartialEq, Debug)]
#[persist(was = "Nothing", was = "regions::identity::bank::Token")]
struct Coin(u64);

fn refused<T: Empty>(region: &Region) -> std::string::String {
    match region.root::<T>("root") {
        Err(Error::Root(error @ RootError::Layout { .. })) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it is another type"),
    }
}

#[test]
fn a_type_of_the_same_name_in_another_module_is_refused() {
    let dir = Dir::new();
    let region = dir.open();
    type Tokens<T> = HashMap<'static, u64, Vec<'static, T>>;
    let mut tokens = region.root::<Tokens<bank::Token>>("root").unwrap();
    region.update(|u| {
        let row = Vec::from_iter_in([bank::Token::new(7)], u.heap());
        tokens.get_mut(u).insert(1, row);
    });
    drop(tokens);
    let told = refused::<Tokens<forger::Token>>(&region);
    assert!(
        told.contains("`regions::identity::bank::Token`")
            && told.contains("`regions::identity::forger::Token`"),
        "{told}"
    );
    assert!(
        told.contains("#[persist(was = \"regions::identity::bank::Token\")]"),
        "{told}"
    );

    let coins = region.root::<Tokens<Coin>>("root").unwrap();
    assert!(region.read(|v| coins.get(v)[&1][0] == Coin(7)));
    drop(coins);
    // It is called so from now on.
    let told = refused::<Tokens<bank::Token>>(&region);
    assert!(told.contains("`regions::identity::Coin`"), "{told}");
    drop(region);
    let region = dir.open();
    assert_eq!(
        region.roots().unwrap()[0].description.types[0].name,
        "HashMap<u64, Vec<Coin>>"
    );
    assert!(region.root::<Tokens<Coin>>("root").is_ok());
    assert!(region.check().unwrap().is_sound());
}

/// Also where it is only a parameter, and no field is of it.
#[test]
fn a_parameter_is_part_of_a_type() {
    let region = Dir::new().open();
    let tagged = region.root_with::<bank::Tagged<bank::Token>>("root", |_| bank::Tagged {
        number: 4,
        tag: std::marker::PhantomData,
    });
    drop(tagged.unwrap());
    let other = region.root_with::<bank::Tagged<forger::Token>>("root", |_| panic!("it is there"));
    assert!(matches!(other, Err(Error::Root(RootError::Layout { .. }))));
    let renamed = region.root_with::<bank::Tagged<Coin>>("root", |_| panic!("it is there"));
    assert_eq!(region.read(|v| renamed.unwrap().get(v).number), 4);
}

/// The file's first roots were made when types had names only.
#[test]
fn a_description_without_paths_is_compared_by_names() {
    use twinpage::persist::Description;
    let mut old = Description::of::<Vec<bank::Token>>();
    old.types.iter_mut().for_each(|ty| ty.path.clear());
    let old = Description::parse(&old.text()).unwrap();
    assert!(old.is_of::<Vec<bank::Token>>() && old.is_of::<Vec<forger::Token>>() && old.is_of::<Vec<Coin>>());
    assert!(!old.is_of::<Vec<(bank::Token,)>>() && !old.is_of::<VecDeque<bank::Token>>());
    let new = Description::of::<Vec<bank::Token>>();
    assert!(
        new.is_of::<Vec<bank::Token>>() && new.is_of::<Vec<Coin>>() && !new.is_of::<Vec<forger::Token>>()
    );
}

/// The empty value is derived for generic types, too.
#[derive(Persist)]
struct Index<'r, K: Ord, V, const N: usize> {
    by_key: BTreeMap<'r, K, V>,
    last: Option<K>,
    recent: [Vec<'r, V>; N],
    extra: V,
}

/// A field without an empty value: the type has none, and is `Persist` all the same.
#[derive(Persist)]
struct Of<T> {
    state: State,
    value: T,
}

#[derive(Persist, Clone, Copy)]
enum State {
    Open,
}

#[test]
fn generic_types_have_an_empty_value() {
    let region = Dir::new().open();
    let mut index = region.root::<Index<u64, String, 3>>("index").unwrap();
    region.update(|u| {
        let index = index.get_mut(u);
        assert!(index.by_key.is_empty() && index.last.is_none() && index.extra.is_empty());
        index.by_key.insert(1, u.string("one"));
        index.recent[2].push(u.string("one"));
    });
    assert!(region.check().unwrap().is_sound());
    let of = region
        .root_with::<Of<u8>>("of", |_| Of {
            state: State::Open,
            value: 3,
        })
        .unwrap();
    assert_eq!(region.read(|v| (of.get(v).state as u8, of.get(v).value)), (0, 3));
}

/// A region is made under a hidden name, which is longer than its own.
#[test]
fn the_longest_name_of_a_file_is_one_of_a_region() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x".repeat(255));
    drop(
        Region::open(&path)
            .unwrap()
            .root_with::<u64>("count", |_| 5)
            .unwrap(),
    );
    let region = Region::open(&path).unwrap();
    let count = region.root::<u64>("count").unwrap();
    assert_eq!(region.read(|v| *count.get(v)), 5);
}
