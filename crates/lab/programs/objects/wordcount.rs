//! WordCount: how often each word is in a text.

use std::collections::BTreeMap;

/// The text that is being counted.
#[derive(Default)]
pub struct WordCount {
    lines: Vec<String>,
    words: Vec<String>,
    pairs: Vec<(String, u64)>,
    counts: BTreeMap<String, u64>,
}

impl WordCount {
    /// A line of the text.
    pub fn read(&mut self, line: String) {
        self.lines.push(line);
    }

    /// Lines become words.
    pub fn split(&mut self) {
        for line in self.lines.drain(..) {
            self.words
                .extend(line.split_whitespace().map(|word| word.to_lowercase()));
        }
    }

    /// Each word stands for one.
    pub fn pair(&mut self) {
        self.pairs.extend(self.words.drain(..).map(|word| (word, 1)));
    }

    /// Equal words are added up.
    pub fn reduce(&mut self) {
        for (word, count) in self.pairs.drain(..) {
            *self.counts.entry(word).or_insert(0) += count;
        }
    }

    /// Words with their counts.
    pub fn counts(&self) -> Vec<(String, u64)> {
        self.counts
            .iter()
            .map(|(word, count)| (word.clone(), *count))
            .collect()
    }
}
