//! Shared libraries of the system, opened when they are there: nothing here is linked against a peer.

use crate::engine::Result;
use libloading::Library;

/// The first of `files` that can be opened; `package` is Debian's name of what brings it.
pub(super) fn open(files: &[&str], package: &str) -> Result<Library> {
    let mut last = String::new();
    for file in files {
        // SAFETY: these libraries do nothing at load that could break what this program has open.
        match unsafe { Library::new(*file) } {
            Ok(library) => return Ok(library),
            Err(error) => last = error.to_string(),
        }
    }
    Err(format!("not installed: apt-get install {package} ({last})"))
}

/// A struct of functions of a C library, all found when it is opened.
macro_rules! c_library {
    ($name:ident, $files:expr, $package:literal, { $($function:ident: $type:ty),* $(,)? }) => {
        #[allow(non_snake_case, reason = "named as in the C headers")]
        struct $name {
            $($function: $type,)*
            /// Keeps the functions where they are.
            _library: libloading::Library,
        }

        impl $name {
            /// Opens the library and finds every function.
            fn load() -> crate::engine::Result<$name> {
                let library = super::library::open(&$files, $package)?;
                // SAFETY: the types are those of the library's header, of the major version its file name says.
                unsafe {
                    Ok($name {
                        $($function: *library
                            .get::<$type>(stringify!($function).as_bytes())
                            .map_err(|error| format!("not as expected: {error}"))?,)*
                        _library: library,
                    })
                }
            }
        }
    };
}
pub(super) use c_library;
