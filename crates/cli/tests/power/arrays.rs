//! Versioned arrays, elements and planes in turn, and an oracle that needs no memory of what was written: what a round
//! does follows from its number.

use super::guest::say;
use std::path::Path;
use twinpage::versions::{Planes, Result, Versions};
use twinpage_core::crash::Random;

const STRINGS: usize = 500;
const VALUES: usize = 20_000;

type Text = [u8; 256];
type Strings = Versions<Text, 3>;
type Field = Planes<u64, 3>;

fn text(index: usize) -> Text {
    let mut text = [index as u8; 256];
    text[..8].copy_from_slice(&(index as u64).to_le_bytes());
    text[248..].copy_from_slice(&(index as u64).to_le_bytes());
    text
}

/// What swap `number` swaps.
fn swap(number: u64) -> (usize, usize) {
    let mut random = Random::new(number);
    let a = random.below(STRINGS as u64) as usize;
    (a, (a + 1 + random.below(STRINGS as u64 - 1) as usize) % STRINGS)
}

/// Swaps of all rounds up to this one.
fn swaps_until(round: u64) -> u64 {
    (1..=round).map(|round| 1 + round % 7).sum()
}

/// Recovers both arrays and verifies them, or makes them; then goes on until the power goes. A round is some swaps, made
/// durable, and a step, made durable.
pub(crate) fn run(folder: &Path, on_dax: bool, go_on: bool) {
    let done = open(folder).and_then(|(strings, field)| match go_on {
        true => write(strings, field, on_dax),
        false => Ok(()),
    });
    if let Err(error) = done {
        say(&format!("broken: {error}"));
    }
}

fn open(folder: &Path) -> Result<(Strings, Field)> {
    let strings = Strings::open(folder.join("strings"), STRINGS, text)?;
    let field = Field::open(folder.join("field"), VALUES)?;
    // Updates are counted from 1, which made the first strings.
    let (swaps, round) = (strings.ticket().number() - 1, field.steps_done());
    let (least, most) = (swaps_until(round), swaps_until(round + 1));
    if !(least..=most).contains(&swaps) {
        say(&format!(
            "broken: {swaps} swaps in round {round}, not {least} to {most}"
        ));
    }
    let mut model: Vec<usize> = (0..STRINGS).collect();
    for number in 1..=swaps {
        let (a, b) = swap(number);
        model.swap(a, b);
    }
    if let Some(index) = (0..STRINGS).find(|&index| *strings.get(index) != text(model[index])) {
        say(&format!("broken: string {index} is not as {swaps} swaps make it"));
    }
    if !field.newest().iter().all(|&value| value == round) {
        say(&format!("broken: step {round} is torn"));
    }
    say(&format!("whole {round}"));
    Ok((strings, field))
}

fn write(mut strings: Strings, mut field: Field, on_dax: bool) -> Result<()> {
    loop {
        let round = field.steps_done() + 1;
        let left = strings.ticket().number()..=swaps_until(round);
        let any = !left.is_empty();
        for number in left {
            let (a, b) = swap(number);
            strings.update(|update| update.swap(a, b));
        }
        strings.durable()?;
        field.step(|_, new| new.fill(round))?;
        field.durable()?;
        // On persistent memory lines are written back; on a disk the system writes pages.
        let instructions = strings.statistics().medium.write_backs;
        if any {
            assert_eq!(instructions > 0, on_dax, "the medium found by looking");
        }
        say(&format!("durable {round}"));
    }
}
