//! The sources, and what is defined in them.
//!
//! Names are kept without the modules they are in: a name that is defined twice means both.

use crate::{Error, Position};
use proc_macro2::{Span, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Generics, ImplItemFn, ItemFn, ItemImpl, Signature, Type};

/// The number of a function in [`Sources`].
pub(crate) type FnId = usize;

/// A function with a body.
pub(crate) struct Function {
    pub(crate) name: String,
    /// The type whose function it is.
    pub(crate) owner: Option<String>,
    /// It implements a trait, or is a trait's own.
    pub(crate) of_trait: bool,
    pub(crate) file: usize,
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) signature: Signature,
    pub(crate) block: Block,
    /// The impl is marked as an object's.
    pub(crate) of_object: bool,
    /// The generic parameters in scope.
    pub(crate) parameters: HashSet<String>,
}

/// A file: its name, and the paths that its imports stand for.
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) imports: HashMap<String, Vec<String>>,
}

/// A type that the type of a field names.
pub(crate) struct FieldType {
    pub(crate) file: usize,
    pub(crate) path: Vec<String>,
}

/// Rust sources, given by files, directories or text.
#[derive(Default)]
pub struct Sources {
    pub(crate) files: Vec<Source>,
    pub(crate) functions: Vec<Function>,
    /// Free functions by name.
    pub(crate) free: HashMap<String, Vec<FnId>>,
    /// Functions of types by name.
    pub(crate) owned: HashMap<String, Vec<FnId>>,
    /// Functions that implement a trait, by name.
    pub(crate) implementing: HashMap<String, Vec<FnId>>,
    pub(crate) statics: HashSet<String>,
    pub(crate) consts: HashSet<String>,
    /// Of them, those that hold functions.
    pub(crate) function_consts: HashSet<String>,
    /// The types that other names of types stand for.
    pub(crate) aliases: HashMap<String, Vec<FieldType>>,
    /// The names of types in the fields of a type.
    pub(crate) fields_of: BTreeMap<String, BTreeSet<String>>,
    /// The types in fields, by the names of the fields.
    pub(crate) fields: HashMap<String, Vec<FieldType>>,
    /// Types and traits.
    pub(crate) defined: HashSet<String>,
    /// Types with a `Drop` of their own.
    pub(crate) dropping: HashMap<String, FnId>,
}

impl Sources {
    /// Adds a file, or every `.rs` file below a directory (`target` and hidden directories left out).
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Syntax`]; [`Error::NoSource`] for a directory without any.
    pub fn read(&mut self, path: &Path) -> Result<(), Error> {
        let files = files_below(path)?;
        if files.is_empty() {
            let path = path.to_owned();
            return Err(Error::NoSource { path });
        }
        for file in files {
            let text = std::fs::read_to_string(&file).map_err(|source| Error::Io {
                path: file.clone(),
                source,
            })?;
            self.add(file, &text)?;
        }
        Ok(())
    }

    /// Adds the text of a file.
    ///
    /// # Errors
    /// [`Error::Syntax`].
    pub fn add(&mut self, path: impl Into<PathBuf>, text: &str) -> Result<(), Error> {
        let path = path.into();
        let parsed = syn::parse_file(text).map_err(|error| Error::Syntax {
            at: place(&path, error.span()),
            why: error.to_string(),
        })?;
        self.files.push(Source {
            path,
            imports: HashMap::new(),
        });
        Indexer::of(self).visit_file(&parsed);
        Ok(())
    }

    /// Adds one `impl` block, whose file is not known.
    pub(crate) fn add_impl(&mut self, item: &ItemImpl) {
        self.files.push(Source {
            path: PathBuf::new(),
            imports: HashMap::new(),
        });
        Indexer::of(self).visit_item_impl(item);
    }

    /// Where something is in file number `file`.
    pub(crate) fn place(&self, file: usize, span: Span) -> Position {
        place(&self.files[file].path, span)
    }

    /// The types that values of `name` may hold, itself included.
    pub(crate) fn held_by<'a>(&'a self, name: &'a str, found: &mut BTreeSet<&'a str>) {
        if found.insert(name) {
            for field in self.fields_of.get(name).into_iter().flatten() {
                self.held_by(field, found);
            }
        }
    }

    fn add_function(&mut self, function: Function) {
        let id = self.functions.len();
        let name = function.name.clone();
        match &function.owner {
            None => self.free.entry(name).or_default().push(id),
            Some(owner) => {
                if name == "drop" && function.of_trait {
                    self.dropping.insert(owner.clone(), id);
                }
                if function.of_trait {
                    self.implementing.entry(name.clone()).or_default().push(id);
                }
                self.owned.entry(name).or_default().push(id);
            }
        }
        self.functions.push(function);
    }
}

fn place(file: &Path, span: Span) -> Position {
    let start = span.start();
    Position {
        file: file.to_owned(),
        line: start.line,
        column: start.column + 1,
    }
}

fn files_below(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |source| Error::Io {
        path: path.to_owned(),
        source,
    };
    if !std::fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut entries: Vec<PathBuf> = std::fs::read_dir(path)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .map_err(failed)?;
    entries.sort();
    let mut files = Vec::new();
    for entry in entries {
        let name = entry.file_name().unwrap_or_default().to_string_lossy();
        let is_link = entry.is_symlink(); // a directory could hold itself
        if entry.is_dir() && !is_link && name != "target" && !name.starts_with('.') {
            files.append(&mut files_below(&entry)?);
        } else if entry.is_file() && name.ends_with(".rs") {
            files.push(entry);
        }
    }
    Ok(files)
}

/// The last part of a type's path: `Scores` of `crate::Scores<'r, T>`, of `&mut Scores` too.
pub(crate) fn type_name(ty: &Type) -> Option<String> {
    match ty {
        Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
        Type::Reference(reference) => type_name(&reference.elem),
        Type::Paren(paren) => type_name(&paren.elem),
        Type::Group(group) => type_name(&group.elem),
        _ => None,
    }
}

pub(crate) fn is_attribute(attribute: &Attribute, name: &str) -> bool {
    attribute
        .path()
        .segments
        .last()
        .is_some_and(|last| last.ident == name)
}

/// Every name in a path of a piece of syntax: those of its types are among them.
#[derive(Default)]
pub(crate) struct TypeNames(pub(crate) BTreeSet<String>);

impl<'a> Visit<'a> for TypeNames {
    fn visit_path(&mut self, path: &'a syn::Path) {
        self.0
            .extend(path.segments.iter().map(|part| part.ident.to_string()));
        visit::visit_path(self, path);
    }
}

/// The path of every type in a piece of syntax.
#[derive(Default)]
pub(crate) struct TypePaths(pub(crate) Vec<Vec<String>>);

impl<'a> Visit<'a> for TypePaths {
    fn visit_type_path(&mut self, path: &'a syn::TypePath) {
        self.0.push(parts_of(&path.path));
        visit::visit_type_path(self, path);
    }
}

/// Whether a type has functions in it: `fn()`, `impl Fn()`, `dyn Fn()`.
struct HoldsFunctions(bool);

impl<'a> Visit<'a> for HoldsFunctions {
    fn visit_type_fn_ptr(&mut self, _: &'a syn::TypeFnPtr) {
        self.0 = true;
    }

    fn visit_trait_bound(&mut self, _: &'a syn::TraitBound) {
        self.0 = true;
    }
}

pub(crate) fn parts_of(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|part| part.ident.to_string()).collect()
}

/// The names of generic parameters that are no lifetimes.
pub(crate) fn names_of(generics: &Generics) -> HashSet<String> {
    let types = generics.type_params().map(|ty| ty.ident.to_string());
    types
        .chain(generics.const_params().map(|value| value.ident.to_string()))
        .collect()
}

struct Indexer<'s> {
    sources: &'s mut Sources,
    owner: Option<(String, bool)>,
    of_object: bool,
    /// Those of the impl.
    parameters: HashSet<String>,
}

impl Indexer<'_> {
    /// Of the last file.
    fn of(sources: &mut Sources) -> Indexer<'_> {
        Indexer {
            sources,
            of_object: false,
            owner: None,
            parameters: HashSet::new(),
        }
    }

    fn function(&mut self, attributes: &[Attribute], signature: &Signature, block: &Block) {
        let (owner, of_trait) = match &self.owner {
            Some((owner, of_trait)) => (Some(owner.clone()), *of_trait),
            None => (None, false),
        };
        self.sources.add_function(Function {
            name: signature.ident.to_string(),
            owner,
            of_trait,
            file: self.sources.files.len() - 1,
            attributes: attributes.to_vec(),
            signature: signature.clone(),
            block: block.clone(),
            of_object: self.of_object,
            parameters: self
                .parameters
                .union(&names_of(&signature.generics))
                .cloned()
                .collect(),
        });
        // Functions, statics and types may be defined in a body. They are no part of the type.
        let outer = (self.owner.take(), std::mem::take(&mut self.of_object));
        self.visit_block(block);
        (self.owner, self.of_object) = outer;
    }

    fn fields(&mut self, name: &syn::Ident, generics: &Generics, fields: &syn::Fields) {
        let file = self.sources.files.len() - 1;
        let parameters = names_of(generics);
        for (index, field) in fields.iter().enumerate() {
            let mut types = TypePaths::default();
            types.visit_type(&field.ty);
            let own = field
                .ident
                .as_ref()
                .map_or(index.to_string(), ToString::to_string);
            for path in types.0.into_iter().filter(|path| !parameters.contains(&path[0])) {
                let held = self.sources.fields_of.entry(name.to_string()).or_default();
                held.extend(path.last().cloned());
                let known = self.sources.fields.entry(own.clone()).or_default();
                known.push(FieldType { file, path });
            }
        }
    }

    fn constant(&mut self, name: &syn::Ident, ty: &Type) {
        self.sources.consts.insert(name.to_string());
        let mut functions = HoldsFunctions(false);
        functions.visit_type(ty);
        if functions.0 {
            self.sources.function_consts.insert(name.to_string());
        }
    }

    fn define(&mut self, name: &syn::Ident) {
        self.sources.defined.insert(name.to_string());
    }

    fn import(&mut self, tree: &syn::UseTree, prefix: &[String]) {
        let with = |name: &syn::Ident| [prefix, &[name.to_string()]].concat();
        let mut add = |name: String, path: Vec<String>| {
            let file = self.sources.files.last_mut().expect("a file is being read");
            file.imports.insert(name, path);
        };
        match tree {
            syn::UseTree::Path(path) => self.import(&path.tree, &with(&path.ident)),
            syn::UseTree::Name(name) if name.ident == "self" => {
                if let Some(last) = prefix.last() {
                    add(last.clone(), prefix.to_vec());
                }
            }
            syn::UseTree::Name(name) => add(name.ident.to_string(), with(&name.ident)),
            syn::UseTree::Rename(rename) => add(rename.rename.to_string(), with(&rename.ident)),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, prefix)),
            _ => {} // a glob: its names are looked up without their path
        }
    }
}

impl<'a> Visit<'a> for Indexer<'_> {
    fn visit_item_fn(&mut self, item: &'a ItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
    }

    fn visit_item_impl(&mut self, item: &'a ItemImpl) {
        let Some(owner) = type_name(&item.self_ty) else {
            return visit::visit_item_impl(self, item);
        };
        let of_object = item
            .attrs
            .iter()
            .any(|attribute| is_attribute(attribute, "object"));
        let outer = (self.owner.replace((owner, item.trait_.is_some())), self.of_object);
        self.of_object = of_object;
        self.parameters = names_of(&item.generics);
        visit::visit_item_impl(self, item);
        (self.owner, self.of_object) = outer;
        self.parameters.clear();
    }

    fn visit_impl_item_fn(&mut self, item: &'a ImplItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
    }

    fn visit_impl_item_const(&mut self, item: &'a syn::ImplItemConst) {
        self.constant(&item.ident, &item.ty);
    }

    /// A name that is given to several types stands for all of them.
    fn visit_item_type(&mut self, item: &'a syn::ItemType) {
        self.define(&item.ident);
        let (file, parameters) = (self.sources.files.len() - 1, names_of(&item.generics));
        let mut types = TypePaths::default();
        types.visit_type(&item.ty);
        let paths = types.0.into_iter().filter(|path| !parameters.contains(&path[0]));
        let targets: Vec<_> = paths.map(|path| FieldType { file, path }).collect();
        let name = item.ident.to_string();
        let held = self.sources.fields_of.entry(name.clone()).or_default();
        held.extend(targets.iter().filter_map(|target| target.path.last().cloned()));
        self.sources.aliases.entry(name).or_default().extend(targets);
    }

    fn visit_item_trait(&mut self, item: &'a syn::ItemTrait) {
        self.define(&item.ident);
        let outer = self.owner.replace((item.ident.to_string(), true));
        for part in &item.items {
            if let syn::TraitItem::Fn(method) = part
                && let Some(block) = &method.default
            {
                self.function(&method.attrs, &method.sig, block);
            }
        }
        self.owner = outer;
    }

    fn visit_item_struct(&mut self, item: &'a syn::ItemStruct) {
        self.define(&item.ident);
        self.fields(&item.ident, &item.generics, &item.fields);
    }

    fn visit_item_enum(&mut self, item: &'a syn::ItemEnum) {
        self.define(&item.ident);
        for variant in &item.variants {
            self.fields(&item.ident, &item.generics, &variant.fields);
        }
    }

    fn visit_item_static(&mut self, item: &'a syn::ItemStatic) {
        self.sources.statics.insert(item.ident.to_string());
    }

    fn visit_item_const(&mut self, item: &'a syn::ItemConst) {
        self.constant(&item.ident, &item.ty);
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        self.import(&item.tree, &[]);
    }

    /// `thread_local!`, `lazy_static!` and their like define statics.
    fn visit_macro(&mut self, item: &'a syn::Macro) {
        statics_in(item.tokens.clone(), &mut self.sources.statics);
    }
}

fn statics_in(tokens: TokenStream, found: &mut HashSet<String>) {
    let mut after_static = false;
    for token in tokens {
        match token {
            TokenTree::Ident(name) if after_static && name != "ref" && name != "mut" => {
                found.insert(name.to_string());
                after_static = false;
            }
            TokenTree::Ident(name) => after_static = name == "static" || after_static,
            TokenTree::Group(group) => statics_in(group.stream(), found),
            _ => after_static = false,
        }
    }
}
