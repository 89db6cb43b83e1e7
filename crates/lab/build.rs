//! Builds the plugin of qemu that records programs (`src/trace/accesses.c`).

use std::env;
use std::path::PathBuf;

const SOURCE: &str = "src/trace/accesses.c";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-changed=src/trace/registers.h");
    println!("cargo::rerun-if-changed=build.rs");
    let library = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where")).join("accesses.so");
    let compiler = cc::Build::new()
        .opt_level(2)
        .debug(false)
        .pic(true)
        .warnings(true)
        .extra_warnings(true)
        .get_compiler();
    let built = compiler
        .to_command()
        .args(["-shared", "-fvisibility=hidden", SOURCE, "-o"])
        .arg(&library)
        .status()
        .unwrap_or_else(|why| panic!("{}: {why}; a C compiler is needed", compiler.path().display()));
    assert!(built.success(), "{SOURCE} does not compile: {built}");
}
