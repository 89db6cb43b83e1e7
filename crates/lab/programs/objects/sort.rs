//! Sort: the lines of a text in order of their keys.

/// Lines, and their keys beside them.
#[derive(Default)]
pub struct Sort {
    lines: Vec<String>,
    keyed: Vec<(String, String)>,
}

impl Sort {
    /// A line.
    pub fn read(&mut self, line: String) {
        self.lines.push(line);
    }

    /// Each line's first word is its key.
    pub fn key(&mut self) {
        for line in self.lines.drain(..) {
            let key = line.split_whitespace().next().unwrap_or("").to_owned();
            self.keyed.push((key, line));
        }
    }

    /// By key; lines of one key stay in order.
    pub fn sort(&mut self) {
        self.keyed.sort_by(|one, other| one.0.cmp(&other.0));
    }

    /// The lines, sorted.
    pub fn lines(&self) -> Vec<String> {
        self.keyed.iter().map(|(_, line)| line.clone()).collect()
    }
}
