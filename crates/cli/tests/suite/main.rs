//! Tests of the built `twinpage` command on real programs, as a user would run it.
//!
//! - `pace`: checkpoints come as the limits allow;
//! - `plain`: the test programs alone print the same thing every time, so that they can be an oracle;
//! - `kills`: each of them killed at random instants and resumed, compared byte for byte with that oracle;
//! - `cpython`: CPython's own tests pass under kills;
//! - `loading`: a resumed program runs while its memory comes back, and is killed meanwhile;
//! - `refused`: things that are hard to carry over are carried whole or refused by name;
//! - `calls`: calls that a stop could cut do what they do alone;
//! - `bad_input`: whatever is given to the command, it says what is wrong and loses nothing;
//! - `gone`: files that are gone at a resume are made again, where their content is held;
//! - `damage`: damaged regions and states are told of, or hold what they held;
//! - `states`: programs are listed, stopped, suspended, and cleaned away;
//! - `trees`: scripts and builds, whose processes come and go, are killed and resumed;
//! - `outlived`: what lives on after the first process is killed and resumed as well;
//! - `asleep`: of a tree that works, the processes that sleep are left alone;
//! - `multiplexer`: a session of tmux is killed, and its screens are as they were;
//! - `attach`: a detached program goes on while terminals come and go;
//! - `told`: what cannot be captured is told at once; a program that was stopped stays so;
//! - `rest`: a program that does nothing costs nothing;
//! - `random`: random sequences of system calls, alone and under kills;
//! - `replies`: what clients of a server saw is never lost;
//! - `sockets`: servers listen again after a kill, and find their connections reset;
//! - `network`: a network of the program's own keeps its connections and ports;
//! - `floor`: a program sees no processor feature above its floor;
//! - `screens`: the default state directory, messages on a terminal, screens drawn again;
//! - `contract`: exit codes, signals, help and JSON, as the README promises them.
//!
//! `TWINPAGE_SEED=N` repeats the choices of an earlier run (every test says its seed), `TWINPAGE_LONG=1`
//! runs longer campaigns. A program whose runtime is missing is skipped and says so, except where `CI=true`.

mod asleep;
mod attach;
mod bad_input;
mod calls;
mod contract;
mod cpython;
mod damage;
mod floor;
mod forks;
mod gone;
mod jobs;
mod kills;
mod loading;
mod multiplexer;
mod network;
mod older;
mod outlived;
mod pace;
mod parents;
mod plain;
mod random;
mod refused;
mod replies;
mod rest;
mod screens;
mod sockets;
mod states;
mod support;
mod told;
mod trees;
mod within;
mod writes;
