//! Counts the words of a text as it comes, and survives being killed at any instant.
//!
//! The counts and the offset of the input they stand for are in one region, and change in one update:
//! after a kill the next life goes on at that offset, and every word is counted once. Without arguments
//! the example makes a text, starts itself on it again and again, kills each life, and compares the
//! result with what coreutils count:
//!
//! ```text
//! cargo run --release --example wordcount              # all of it, with kills
//! cargo run --release --example wordcount -- TEXT FILE # count TEXT, with the counts in FILE
//! ```

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use twinpage::collections::{HashMap, String as Text};
use twinpage::{Persist, Region};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// What survives.
#[derive(Persist)]
struct Counts<'r> {
    /// Bytes of the text that are counted.
    offset: u64,
    words: HashMap<'r, Text<'r>, u64>,
}

fn main() -> Outcome<()> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    match &arguments[..] {
        [text, file] => count(text, file),
        [] => prove(),
        _ => Err("usage: wordcount [TEXT FILE]".into()),
    }
}

/// Counts to the end of the text, from where the last life came to, and prints the counts.
fn count(text: &Path, file: &Path) -> Outcome<()> {
    let region = Region::options().every(Duration::from_millis(16)).open(file)?;
    let mut counts = region.root::<Counts>("counts")?;
    let mut input = BufReader::new(File::open(text)?);
    input.seek(SeekFrom::Start(region.read(|v| counts.get(v).offset)))?;
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        region.update(|u| {
            let counts = counts.get_mut(u);
            for word in std::str::from_utf8(&line)
                .unwrap_or_default()
                .split_ascii_whitespace()
            {
                match counts.words.get_mut(word) {
                    Some(count) => *count += 1,
                    None => {
                        counts.words.insert(u.string(word), 1);
                    }
                }
            }
            counts.offset += line.len() as u64;
        });
        line.clear();
    }
    region.durable()?;
    region.read(|v| -> Outcome<()> {
        let words = counts.get(v).words.iter();
        let sorted: BTreeMap<&str, u64> = words.map(|(word, n)| (word.as_str(), *n)).collect();
        let mut out = std::io::stdout().lock();
        for (word, count) in sorted {
            writeln!(out, "{count} {word}")?;
        }
        Ok(())
    })
}

/// Counts a text with a kill every few milliseconds, and compares with coreutils.
fn prove() -> Outcome<()> {
    let folder = std::env::temp_dir().join(format!("twinpage-wordcount-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (text, file) = (folder.join("text"), folder.join("counts.twin"));
    let words = write_text(&text)?;
    println!("text    {} words in {} bytes", words, text.metadata()?.len());
    let (mut kills, mut patience_ms) = (0, 20);
    let ours = loop {
        let mut child = Command::new(std::env::current_exe()?)
            .args([&text, &file])
            .stdout(Stdio::piped())
            .spawn()?;
        if kills < 20 {
            std::thread::sleep(Duration::from_millis(patience_ms));
            if child.try_wait()?.is_none() {
                child.kill()?;
                child.wait()?;
                kills += 1;
                // A busy machine must not keep it from getting anywhere.
                patience_ms += 5;
                continue;
            }
        }
        let out = child.wait_with_output()?;
        if !out.status.success() {
            return Err(format!("the last life ended with {}", out.status).into());
        }
        break out.stdout;
    };
    println!("kills   {kills}");
    let script = "tr -s '[:space:]' '\\n' < \"$1\" | grep -v '^$' | sort | uniq -c | sed 's/^ *//'";
    let theirs = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(&text)
        .env("LC_ALL", "C")
        .output()?
        .stdout;
    let same = ours == theirs;
    println!(
        "words   {} different, {}",
        ours.split(|&byte| byte == b'\n').count() - 1,
        if same {
            "counted as coreutils count them"
        } else {
            "NOT as coreutils count them"
        }
    );
    std::fs::remove_dir_all(folder)?;
    if same {
        Ok(())
    } else {
        Err("the counts differ".into())
    }
}

/// A text of this machine's licences, or, where there are none, of made-up words with Zipf's frequencies.
/// Says how many words it has.
fn write_text(path: &Path) -> Outcome<usize> {
    const BYTES: usize = 24 << 20;
    let mut real = String::new();
    for licence in std::fs::read_dir("/usr/share/common-licenses")
        .into_iter()
        .flatten()
        .flatten()
    {
        real.push_str(&std::fs::read_to_string(licence.path()).unwrap_or_default());
    }
    let mut random = 1_u64;
    let mut text = String::with_capacity(BYTES + 100);
    while text.len() < BYTES {
        if real.is_empty() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let rank = (1.0 / ((random >> 11) as f64 / (1_u64 << 53) as f64 + 1e-5)) as u64;
            text.push_str(&format!(
                "word{rank}{}",
                if rank.is_multiple_of(9) { '\n' } else { ' ' }
            ));
        } else {
            text.push_str(&real);
        }
    }
    text.push('\n');
    let words = text.split_ascii_whitespace().count();
    std::fs::write(path, text)?;
    Ok(words)
}
